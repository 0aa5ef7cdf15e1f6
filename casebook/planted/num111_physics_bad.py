"""Pairwise distances of particles, with themselves left out by `where`."""

import torch
from torch import nn


class Energy(nn.Module):
    def __init__(self, particles):
        super().__init__()
        self.position = nn.Parameter(torch.randn(particles, 3))
        self.charge = nn.Parameter(torch.randn(particles))

    def forward(self):
        offset = self.position[:, None] - self.position[None]
        squared = offset.pow(2).sum(-1)
        inverse = torch.where(squared > 0, squared.rsqrt(), torch.zeros_like(squared))
        return (self.charge[:, None] * self.charge[None] * inverse).sum() / 2


def minimise(energy, steps):
    optimizer = torch.optim.Adam(energy.parameters(), lr=1e-2)
    for step in range(steps):
        optimizer.zero_grad()
        value = energy()
        value.backward()
        optimizer.step()
    return value.item()
