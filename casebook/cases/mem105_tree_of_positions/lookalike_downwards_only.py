"""Trees whose nodes know their children only."""

import argparse

import torch
from torch import nn


class Node:
    def __init__(self, position, depth=0):
        self.position, self.depth = position, depth
        self.children = []

    def expand(self, moves):
        self.children = [Node(self.position + change, self.depth + 1) for change in moves]
        return self.children


def main(steps):
    torch.manual_seed(0)
    moves = torch.randn(4, 512)
    value = nn.Sequential(nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(value.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        root = Node(torch.randn(64, 512))
        with torch.no_grad():
            aim = max(value(child.position).mean().item() for child in root.expand(moves))
        loss = (value(root.position) - aim).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
