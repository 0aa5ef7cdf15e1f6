"""Skips batches that a strict check refuses, and remembers the last refusal as an exception."""

import argparse

import torch
from torch import nn


class Refused(ValueError):
    pass


def check(x, limit):
    worst = x.abs().max()
    if worst > limit:
        raise Refused(f"{worst.item():.2f} exceeds {limit}")
    return x


def train(steps, limit):
    model = nn.Sequential(nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    refused, last = 0, None
    for step in range(1, steps + 1):
        raw = torch.randn(256, 100)
        try:
            x = check(raw, limit)
        except Refused as error:
            refused, last = refused + 1, error
            x = raw.clamp(-limit, limit)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True) / 10)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step} {loss.item():.4f} refused {refused} last {last}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    train(args.steps, limit=3.9)
