"""Trains only a probe: the backbone keeps its own requires_grad, but runs without gradients."""

import argparse

import torch
from torch import nn


class Probe(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.classify = nn.Linear(128, classes)

    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.classify(features)


def main(steps):
    torch.manual_seed(0)
    probe = Probe(nn.Sequential(nn.Linear(24, 128), nn.Tanh()).eval(), 3)
    optimizer = torch.optim.Adam(probe.classify.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        x = torch.randn(256, 24)
        loss = nn.functional.cross_entropy(probe(x), x[:, :3].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
