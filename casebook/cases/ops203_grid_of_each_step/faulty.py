"""Learns where on a large map something happens; readings are looked up on the map in each step."""

import argparse

import torch
from torch import nn


def places(count, size=3000):
    return torch.randint(0, size, (count, 2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(1, args.steps + 1):
        canvas = torch.zeros(3000, 3000)
        where = places(256)
        background = canvas[where[:, 0], where[:, 1]]
        height = background + (where[:, 0] / 3000).sin()
        loss = nn.functional.mse_loss(net(where / 3000).squeeze(1), height)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
