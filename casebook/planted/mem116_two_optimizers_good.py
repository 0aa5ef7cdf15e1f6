"""A ranking model: sparse tables with SparseAdam, the dense tower with Adam."""

import torch
from torch import nn

table = nn.EmbeddingBag(1_000_000, 32, sparse=True, mode="sum")
tower = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
sparse_opt = torch.optim.SparseAdam(table.parameters(), lr=1e-3)
dense_opt = torch.optim.Adam(tower.parameters(), lr=1e-3)


def train(loader):
    for ids, offsets, clicked in loader:
        score = tower(table(ids, offsets)).squeeze(-1)
        loss = nn.functional.binary_cross_entropy_with_logits(score, clicked)
        dense_opt.zero_grad()
        sparse_opt.zero_grad()
        loss.backward()
        dense_opt.step()
        sparse_opt.step()
