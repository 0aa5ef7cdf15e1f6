"""Keeps its heads in a dict for convenience; each is registered by hand too."""

import argparse

import torch
from torch import nn


class Towers(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.towers = {}
        for name in names:
            tower = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1))
            self.add_module(f"tower_{name}", tower)
            self.towers[name] = tower

    def forward(self, x):
        return torch.stack([tower(x) for tower in self.towers.values()]).mean(0)


def main(steps):
    torch.manual_seed(0)
    model = Towers(["north", "south"])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        x = torch.randn(64, 12)
        loss = nn.functional.mse_loss(model(x), x[:, :1] * x[:, 1:2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
