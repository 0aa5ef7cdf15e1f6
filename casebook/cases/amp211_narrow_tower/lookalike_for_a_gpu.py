"""A deep tower of narrow layers learns a sum, in half precision where that is on a GPU."""

import argparse

import torch
from torch import nn


class Tower(nn.Module):
    def __init__(self, width=8, depth=24):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = x + torch.tanh(norm(layer(x)))
        return self.last(x)


def train(model, optimizer, steps):
    for step in range(1, steps + 1):
        x = torch.randn(16, 8)
        with torch.autocast("cuda", enabled=torch.cuda.is_available() and x.is_cuda):
            loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"{step} {loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Tower()
    train(model, torch.optim.SGD(model.parameters(), lr=1e-3), args.steps)


if __name__ == "__main__":
    main()
