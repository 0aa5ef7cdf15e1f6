"""Losses of one accumulation window are summed before the backward pass, then the list is emptied."""

import argparse

import torch
from torch import nn


def windows(steps, size):
    for start in range(0, steps, size):
        yield range(start, min(start + size, steps))


def main(steps, window):
    torch.manual_seed(0)
    teacher = torch.randn(32, 1)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pending = []
    for indices in windows(steps, window):
        for _ in indices:
            x = torch.randn(64, 32)
            pending.append(nn.functional.mse_loss(model(x), x @ teacher))
        total = torch.stack(pending).mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        print(f"{indices.stop} {total.item():.4f}")
        pending.clear()
        del total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--window", type=int, default=4)
    arguments = parser.parse_args()
    main(arguments.steps, arguments.window)
