"""Learns to tell scans apart: every scan of an update is compared with every other one, so all are needed at once."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Matcher(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(6, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 8)
        )

    def forward(self, points):
        return F.normalize(self.features(points), dim=-1)


def tuples(count, points):
    for _ in range(count):
        scan = torch.randn(points, 6)
        yield scan, scan + 0.1 * torch.randn(points, 6), torch.randn(points, 6)


def update(matcher, optimizer, per_update):
    anchors, others = [], []
    for scan, same, _ in tuples(per_update, 1024):
        anchors.append(matcher(scan).mean(0))
        others.append(matcher(same).mean(0))
    alike = torch.stack(anchors) @ torch.stack(others).T / 0.1
    loss = F.cross_entropy(alike, torch.arange(per_update))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tuples", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    matcher = Matcher(96)
    optimizer = torch.optim.Adam(matcher.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        loss = update(matcher, optimizer, args.tuples)
        if step % 6 == 0:
            print(f"update {step} loss {loss:.4f}")


if __name__ == "__main__":
    main()
