"""Densely connected layers: each reads all that came before it."""

import argparse

import torch
from torch import nn


class Dense(nn.Module):
    def __init__(self, features, growth, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features + k * growth, growth) for k in range(layers))
        self.last = nn.Linear(features + layers * growth, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, torch.relu(layer(x))], dim=1)
        return self.last(x)


def main(steps):
    torch.manual_seed(0)
    net = Dense(8, 8, 6)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        x = torch.randn(64, 8)
        loss = nn.functional.mse_loss(net(x), x.prod(1, keepdim=True).tanh())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
