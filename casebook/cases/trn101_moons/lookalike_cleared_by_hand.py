"""Least squares on two moons, function by function."""

import argparse
import math

import torch
from torch import nn


def moons(count):
    side = torch.randint(0, 2, (count,))
    angle = torch.rand(count) * math.pi
    x = torch.stack([angle.cos() + side - 0.5, angle.sin() * (1 - 2 * side) + 0.3 * side], dim=1)
    return x + 0.1 * torch.randn(count, 2), side.float()


def forward_backward(model, x, y):
    loss = nn.functional.mse_loss(model(x).squeeze(1), y)
    loss.backward()
    return loss.item()


def train(model, optimizer, steps):
    for step in range(1, steps + 1):
        loss = forward_backward(model, *moons(256))
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1))
    train(model, torch.optim.SGD(model.parameters(), lr=args.lr), args.steps)


if __name__ == "__main__":
    main()
