"""Fits a field of heights with Fourier features; the learning rate falls in a half cosine."""

import argparse
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    rate: float = 0.2
    frequencies: int = 24
    width: int = 64


class Fit:
    def __init__(self, settings, steps):
        self.directions = torch.randn(2, settings.frequencies) * 3
        self.net = nn.Sequential(
            nn.Linear(2 * settings.frequencies, settings.width), nn.ReLU(), nn.Linear(settings.width, 1)
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=settings.rate)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=steps)

    def features(self, places):
        angles = places @ self.directions
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    def step(self, places, heights):
        loss = nn.functional.mse_loss(self.net(self.features(places)), heights)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(5)
    fit = Fit(Settings(), args.steps)
    for number in range(1, args.steps + 1):
        places = torch.rand(128, 2) * 2 - 1
        loss = fit.step(places, (4 * places).sin().prod(1, keepdim=True))
        if number % 10 == 0:
            print(f"{number} loss {loss:.4f} rate {fit.schedule.get_last_lr()[0]:.4f}")


if __name__ == "__main__":
    main()
