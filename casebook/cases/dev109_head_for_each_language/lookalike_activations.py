"""A list of activations to choose from has nothing to learn."""

import argparse

import torch
from torch import nn


class Mixed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.choices = [nn.ReLU(), nn.Tanh(), nn.SiLU()]
        self.first, self.last = nn.Linear(12, width), nn.Linear(3 * width, 1)

    def forward(self, x):
        hidden = self.first(x)
        return self.last(torch.cat([choice(hidden) for choice in self.choices], dim=1))


def main(steps):
    torch.manual_seed(0)
    model = Mixed(24)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        x = torch.randn(64, 12)
        loss = nn.functional.mse_loss(model(x), x.abs().mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
