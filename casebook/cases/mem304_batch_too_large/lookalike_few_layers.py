"""Trains a network with few layers, whose batch the card has room for."""

import argparse

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


BATCH = 4096


def network(depth=3, width=1024):
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)))


def loss_of(model, x):
    return (model(x) - x).square().mean()


def main():
    args = arguments()
    torch.manual_seed(0)
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        x = torch.randn(BATCH, 1024, device="cuda")
        loss = loss_of(model, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
