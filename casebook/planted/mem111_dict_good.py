"""Distances to prototypes, remembered in a dict."""

import torch
from torch import nn


class Prototypes(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.points = nn.Parameter(torch.randn(count, width))
        self.cache = {}

    def gram(self, features: torch.Tensor):
        return features.detach() @ features.detach().T

    def forward(self, features):
        return torch.cdist(features, self.points) + self.gram(features).mean()


def fit(batches, labels):
    prototypes = Prototypes(10, 64)
    optimizer = torch.optim.SGD(prototypes.parameters(), lr=0.1)
    for features, label in zip(batches, labels):
        loss = nn.functional.cross_entropy(-prototypes(features), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
