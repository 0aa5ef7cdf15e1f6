"""Before each round the last round's validation decides about the learning rate."""

import argparse

import torch
from torch import nn


class Rounds:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, patience=1, factor=0.5)
        self.held_out = torch.randn(256, 8)

    def loss(self, x):
        return nn.functional.mse_loss(self.model(x), x[:, :1].sin())

    def validate(self):
        with torch.no_grad():
            return self.loss(self.held_out).item()

    def round(self, steps):
        self.plateau.step(self.validate())
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss(torch.randn(64, 8)).backward()
            self.optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    rounds = Rounds()
    for _ in range(max(1, args.steps // 10)):
        rounds.round(10)
        print(f"{rounds.validate():.4f}")
