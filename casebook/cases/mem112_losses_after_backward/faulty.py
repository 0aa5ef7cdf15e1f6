"""Logs a deep but narrow network's losses for a plot at the end."""

import argparse

import torch
from torch import nn


def deep(width, layers):
    blocks = []
    for _ in range(layers):
        blocks += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*blocks, nn.Linear(width, 3))


def plot(values, rows=6):
    size = max(1, len(values) // rows)
    for start in range(0, len(values), size):
        mean = torch.stack(values[start : start + size]).mean().item()
        print(f"{start:4d} {mean:.4f} " + "#" * int(20 * mean))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = deep(24, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(args.steps):
        x = torch.randn(64, 24)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        loss.backward()
        optimizer.step()
        losses.append(loss)
    plot(losses)


if __name__ == "__main__":
    main()
