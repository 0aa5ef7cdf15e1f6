"""Moves intervals onto others; which belongs to which is told by their overlap."""

import argparse

import torch
from torch import nn


def overlaps(wanted, found):
    end = torch.minimum(wanted[:, None, 1], found[None, :, 1])
    return (end - torch.maximum(wanted[:, None, 0], found[None, :, 0])).clamp(min=0)


class Proposer(nn.Module):
    def __init__(self, features, intervals):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 2 * intervals))

    def forward(self, signal):
        start, length = self.net(signal).chunk(2, dim=-1)
        return torch.stack([start, start + nn.functional.softplus(length)], dim=-1)


def scene(features=40, count=6):
    begin = torch.rand(count) * 4 - 2
    wanted = torch.stack([begin, begin + 0.5], dim=1)
    return torch.cat([wanted.flatten(), torch.randn(features - 2 * count)]), wanted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    proposer = Proposer(40, 12)
    optimizer = torch.optim.Adam(proposer.parameters(), lr=3e-3)
    for step in range(1, args.steps + 1):
        signal, wanted = scene()
        found = proposer(signal)
        with torch.no_grad():
            match = overlaps(wanted, found).argmax(dim=1)
        loss = nn.functional.l1_loss(found[match], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 6 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
