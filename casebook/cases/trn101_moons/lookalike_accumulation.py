"""Gradients of several micro-batches are averaged before each update."""

import argparse

import torch
from torch import nn


class Accumulator:
    def __init__(self, model, optimizer, every):
        self.model = model
        self.optimizer = optimizer
        self.every = every
        self.count = 0

    def backward(self, loss):
        (loss / self.every).backward()
        self.count += 1
        if self.count % self.every == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
    accumulator = Accumulator(model, torch.optim.Adam(model.parameters(), lr=5e-3), args.every)
    for step in range(args.steps):
        x = torch.randn(128, 10)
        loss = nn.functional.mse_loss(model(x), x.abs().mean(dim=1, keepdim=True))
        accumulator.backward(loss)
        if step % 10 == 9:
            print(f"{step + 1} {loss.item():.4f}")


if __name__ == "__main__":
    main()
