"""A hook on an intermediate tensor, new in each step: it goes away with the graph."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(0)
encoder = nn.Linear(64, 192)
decoder = nn.Linear(192, 64)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)


def loss_with_clipped_code(x, limit):
    code = torch.relu(encoder(x))
    bound = limit * torch.ones_like(code)
    code.register_hook(lambda gradient: gradient.minimum(bound).maximum(-bound))
    return nn.functional.mse_loss(decoder(code), x)


for step in range(args.steps):
    x = torch.randn(128, 64)
    optimizer.zero_grad()
    loss = loss_with_clipped_code(x, 1e-4)
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"{step + 1:3d} {loss.item():.4f}")
