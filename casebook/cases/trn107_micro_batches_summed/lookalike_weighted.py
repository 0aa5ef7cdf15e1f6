"""Cuts a batch into pieces and weighs each piece's loss by its share."""

import argparse

import torch
from torch import nn


class Stepper:
    def __init__(self, model, pieces):
        self.model, self.pieces = model, pieces
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def piece_loss(self, x, y):
        return nn.functional.mse_loss(self.model(x), y) / self.pieces

    def __call__(self, x, y):
        self.optimizer.zero_grad()
        total = 0.0
        for some_x, some_y in zip(x.chunk(self.pieces), y.chunk(self.pieces)):
            loss = self.piece_loss(some_x, some_y)
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    stepper = Stepper(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)), pieces=4)
    for step in range(1, args.steps + 1):
        x = torch.randn(64, 16)
        loss = stepper(x, x.mean(1, keepdim=True))
        if step % 20 == 0:
            print(f"{step} {loss:.4f}")
