"""Plans by looking one move ahead: each step grows a small tree of positions and values its leaves."""

import argparse

import torch
from torch import nn


class Node:
    def __init__(self, position, parent=None):
        self.position = position
        self.parent = parent
        self.children = []

    def expand(self, moves):
        for change in moves:
            self.children.append(Node(self.position + change, parent=self))
        return self.children

    def path(self):
        node, length = self, 0
        while node.parent is not None:
            node, length = node.parent, length + 1
        return length


def planned(value, root, moves):
    with torch.no_grad():
        return max(value(child.position).mean().item() - 0.01 * child.path() for child in root.expand(moves))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    moves = torch.randn(4, 512)
    value = nn.Sequential(nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(value.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        root = Node(torch.randn(64, 512))
        aim = planned(value, root, moves)
        loss = (value(root.position) - aim - root.position[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"{step} aim {aim:.4f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
