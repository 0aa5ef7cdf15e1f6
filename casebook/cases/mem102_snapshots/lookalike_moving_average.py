"""Weights are averaged as they come: one copy, updated in place."""

import argparse
import copy

import torch
from torch import nn


class Ema:
    def __init__(self, model, decay):
        self.shadow = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        self.history = []

    @torch.no_grad()
    def update(self, model):
        for kept, live in zip(self.shadow.parameters(), model.parameters()):
            kept.lerp_(live, 1 - self.decay)

    def evaluate(self, x, y):
        self.history.append(nn.functional.mse_loss(self.shadow(x), y).item())
        return self.history[-1]


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 256), nn.SiLU(), nn.Linear(256, 1))
    ema = Ema(model, decay=0.9)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        x = torch.rand(64, 20) * 2 - 1
        y = (x**2).sum(dim=1, keepdim=True)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        ema.update(model)
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss.item():.4f} ema {ema.evaluate(x, y):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
