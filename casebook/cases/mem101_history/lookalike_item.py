"""Train a small classifier; the curve is kept as plain numbers."""

import argparse

import torch
from torch import nn


class Meter:
    def __init__(self):
        self.values = []
        self.total = 0.0

    def update(self, value):
        self.values.append(value)
        self.total += value

    def mean(self, window):
        return sum(self.values[-window:]) / len(self.values[-window:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(1)
    teacher = torch.randn(64, 10)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Meter()
    for step in range(args.steps):
        x = torch.randn(256, 64)
        loss = nn.functional.cross_entropy(model(x), (x @ teacher).argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss.item())
        if (step + 1) % 10 == 0:
            print(f"{step + 1} {meter.mean(10):.4f}")
    print(f"total {meter.total:.3f}")


if __name__ == "__main__":
    main()
