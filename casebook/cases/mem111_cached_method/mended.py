"""Positional features are computed by a cached method."""

import argparse

import torch
from torch import nn


class Featurizer:
    def __init__(self, bands):
        self.frequencies = 2.0 ** torch.arange(bands)

    def encode(self, positions):
        angles = positions[:, None] * self.frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class Field(nn.Module):
    def __init__(self, featurizer, bands, width=64):
        super().__init__()
        self.featurizer = featurizer
        self.layers = nn.Sequential(nn.Linear(2 * bands, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, positions):
        return self.layers(self.featurizer.encode(positions)).squeeze(1)


def signal(positions):
    return torch.sin(9 * positions) + 0.5 * torch.cos(31 * positions)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--bands", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    field = Field(Featurizer(args.bands), args.bands)
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
    for step in range(args.steps):
        positions = torch.rand(1024)
        loss = nn.functional.mse_loss(field(positions), signal(positions))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
