"""Aligns two sequences by attention, in a module written by hand."""

import argparse

import torch
from torch import nn


class Alignment(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.width = width
        self.query, self.key = nn.Linear(features, width), nn.Linear(features, width)

    def forward(self, one, other):
        queries, keys = self.query(one), self.key(other)
        scores = torch.bmm(queries, keys.transpose(1, 2).contiguous()) / self.width**0.5
        return scores.log_softmax(dim=2)


def shuffled(count, length=20, features=12):
    one = torch.randn(count, length, features)
    order = torch.stack([torch.randperm(length) for _ in range(count)])
    other = torch.empty_like(one).scatter_(1, order[:, :, None].expand_as(one), one)
    return one, other, order


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    align = Alignment(12, 32)
    optimizer = torch.optim.Adam(align.parameters(), lr=5e-3)
    for step in range(1, args.steps + 1):
        one, other, order = shuffled(16)
        loss = nn.functional.nll_loss(align(one, other).flatten(0, 1), order.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
