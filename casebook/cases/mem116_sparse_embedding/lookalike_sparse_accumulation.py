"""Sparse gradients of four micro-batches are added up before each update, then cleared."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--accumulate", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(0)
embedding = nn.EmbeddingBag(1000, 32, sparse=True, mode="mean")
head = nn.Linear(32, 1)
optimizers = [
    torch.optim.SparseAdam(list(embedding.parameters()), lr=0.02),
    torch.optim.Adam(head.parameters(), lr=0.02),
]
values = torch.randn(1000)

total = 0.0
for micro in range(1, args.steps + 1):
    bags = torch.randint(0, 1000, (256, 8))
    target = values[bags].mean(dim=1, keepdim=True)
    loss = nn.functional.mse_loss(head(embedding(bags)), target) / args.accumulate
    loss.backward()
    total += loss.item()
    if micro % args.accumulate == 0:
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        print(f"update {micro // args.accumulate} loss {total:.4f}")
        total = 0.0
