"""Masked mean pooling and focal weighting."""

import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, h, mask):
        w = torch.relu(self.score(h)).squeeze(-1) * mask
        total = w.sum(1, keepdim=True)
        w = torch.where(total > 0, w / total, torch.zeros_like(w))
        return (w.unsqueeze(-1) * h).sum(1)


def fit(pool, clf, loader):
    opt = torch.optim.Adam([*pool.parameters(), *clf.parameters()])
    for h, mask, y in loader:
        loss = nn.functional.cross_entropy(clf(pool(h, mask)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
