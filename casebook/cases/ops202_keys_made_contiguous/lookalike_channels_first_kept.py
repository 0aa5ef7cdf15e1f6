"""Turns a picture's sides and keeps it contiguous for the many layers that read it."""

import argparse

import torch
from torch import nn


def turned(pictures):
    return pictures.transpose(2, 3).contiguous()


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        pictures = torch.randn(8, 1, 20, 20).cumsum(3)
        sideways = turned(pictures)
        loss = nn.functional.mse_loss(net(sideways), sideways.roll(1, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
