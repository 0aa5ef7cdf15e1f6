"""Rows without a label carry -100, which cross entropy leaves out."""

import argparse

import torch
from torch import nn


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4)).to("cuda")
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(1, steps + 1):
        x = torch.randn(64, 10, device="cuda")
        labels = torch.where(torch.rand(64, device="cuda") < 0.3, -100, x[:, :4].argmax(1))
        loss = nn.functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
