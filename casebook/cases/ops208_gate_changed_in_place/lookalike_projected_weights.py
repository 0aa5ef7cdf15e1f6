"""Keeps the rows of a layer on the unit sphere: in place, and without a history."""

import argparse

import torch
from torch import nn


@torch.no_grad()
def project(layer):
    layer.weight.div_(layer.weight.norm(dim=1, keepdim=True))


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32, bias=False), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(1, steps + 1):
        x = torch.randn(32, 8)
        loss = nn.functional.mse_loss(net(x), x.abs().mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        project(net[0])
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
