"""Builds a doubly linked tree of names in each step: cycles, but no tensor in them."""

import argparse

import torch
from torch import nn


class Node:
    def __init__(self, label, parent=None):
        self.label = label
        self.parent = parent
        self.children = []
        if parent is not None:
            parent.children.append(self)


def parse(tokens):
    root = Node("root")
    current = root
    for token in tokens:
        current = Node(token, current) if token % 2 else Node(token, current.parent or root)
    return root


def depth(node):
    return 1 + max((depth(child) for child in node.children), default=0)


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(64, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        tokens = torch.randint(0, 64, (128, 12))
        depths = torch.tensor([[float(depth(parse(row)))] for row in tokens.tolist()])
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(tokens), depths)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
