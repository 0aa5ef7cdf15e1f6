"""Signals are told apart by the normalised energy behind a bank of filters; trained in single precision so far."""

import argparse

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bank = nn.Linear(64, 32, bias=False)
        self.norm = nn.BatchNorm1d(32)
        self.score = nn.Linear(32, 2)

    def energy(self, x):
        return self.norm(self.bank(x).pow(2))

    def forward(self, x):
        return self.score(self.energy(x))


def signals(count):
    loud = torch.rand(count, 1) < 0.5
    wave = torch.sin(torch.arange(64) * torch.rand(count, 1) * 3)
    return wave * torch.where(loud, 900.0, 100.0) + torch.randn(count, 64), loud.long().squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, args.steps + 1):
        x, y = signals(64)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
