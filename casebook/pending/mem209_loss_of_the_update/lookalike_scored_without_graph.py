"""Fits a field to samples and adds up the losses of many held-out batches, without a graph, before each update."""

import argparse

import torch
from torch import nn


def samples(count):
    x = torch.rand(count, 2)
    return x, torch.sin(6 * x).prod(1, keepdim=True)


class Fit:
    def __init__(self, held_out):
        self.held_out = held_out
        self.model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    @torch.no_grad()
    def score(self):
        total = 0.0
        for x, y in self.held_out:
            total = total + self.criterion(self.model(x), y) / len(self.held_out)
        return total

    def step(self, x, y):
        loss = self.criterion(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    fit = Fit([samples(256) for _ in range(20)])
    for step in range(1, args.steps + 1):
        fit.step(*samples(2048))
        score = fit.score()
        if step % 6 == 0:
            print(f"update {step} held out {score.item():.4f}")


if __name__ == "__main__":
    main()
