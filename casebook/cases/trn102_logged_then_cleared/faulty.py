"""Predicts tides from the moon and the wind; an updater object does what one update needs."""

import argparse
import math
from collections import deque

import torch
from torch import nn


class Updater:
    def __init__(self, network, rate, window=10):
        self.network = network
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
        self.norms = deque(maxlen=window)

    def gradient_norm(self):
        squares = [p.grad.pow(2).sum() for p in self.network.parameters() if p.grad is not None]
        return math.sqrt(torch.stack(squares).sum().item())

    def _finish(self):
        self.norms.append(self.gradient_norm())
        self.optimizer.zero_grad()
        self.optimizer.step()

    def __call__(self, loss):
        loss.backward()
        self._finish()
        return loss.item()


def tides(days):
    for _ in range(days):
        moon, wind = torch.rand(96, 1) * 2 * math.pi, torch.randn(96, 3)
        height = moon.cos() + 0.3 * wind[:, :1].tanh()
        yield torch.cat([moon.sin(), moon.cos(), wind], dim=1), height


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(5, 48), nn.SiLU(), nn.Linear(48, 1))
    update = Updater(network, rate=3e-3)
    for day, (weather, height) in enumerate(tides(args.steps), start=1):
        loss = update(nn.functional.huber_loss(network(weather), height))
        if day % 10 == 0:
            print(f"day {day} loss {loss:.4f} norm {sum(update.norms) / len(update.norms):.3f}")


if __name__ == "__main__":
    main()
