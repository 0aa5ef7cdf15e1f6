"""Train a small classifier and report the smoothed loss."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

torch.manual_seed(0)
teacher = torch.randn(64, 10)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)


def batch(size=128):
    x = torch.randn(size, 64)
    return x, (x @ teacher).argmax(dim=1)


def smoothed(values, window=10):
    return torch.stack(values[-window:]).mean().item()


history = []
for step in range(args.steps):
    x, y = batch()
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    history.append(loss.detach())
    if (step + 1) % 10 == 0:
        print(f"step {step + 1:4d} loss {smoothed(history):.4f}")
