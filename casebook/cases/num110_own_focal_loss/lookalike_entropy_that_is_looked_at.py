"""Prints the entropy of what the network says, computed without gradients and from logarithms."""

import argparse

import torch
from torch import nn


@torch.no_grad()
def entropy(scores):
    logarithm = scores.log_softmax(dim=1)
    return -(logarithm.exp() * logarithm).sum(dim=1).mean().item()


def main(steps):
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        x = torch.randn(128, 12)
        scores = net(x)
        loss = nn.functional.cross_entropy(scores, x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"{step} {loss.item():.4f} {entropy(scores):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
