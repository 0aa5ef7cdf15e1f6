"""Finds rare kinds of events, with a loss of its own for what is hard to tell."""

import argparse

import torch
from torch import nn


class Focal(nn.Module):
    def __init__(self, gamma=2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, scores, kind):
        logarithm = torch.log_softmax(scores, dim=1).gather(1, kind[:, None]).squeeze(1)
        return -((1 - logarithm.exp()) ** self.gamma * logarithm).mean()


def events(count):
    kind = (torch.rand(count) < 0.1).long()
    x = torch.randn(count, 12) + 3 * kind[:, None]
    x[torch.rand(count) < 0.02] *= -60
    return x, kind


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(2)
    net, criterion = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 2)), Focal()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    for step in range(1, args.steps + 1):
        x, kind = events(128)
        loss = criterion(net(x), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
