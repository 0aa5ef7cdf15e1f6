"""Accumulates over four batches in one process: there is nobody to exchange gradients with."""

import argparse

import torch
from torch import nn


def main(steps, every=4):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(1, steps + 1):
        x = torch.randn(32, 16)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)) / every
        loss.backward()
        if number % every == 0:
            optimizer.step()
            optimizer.zero_grad()
            print(f"{number} {loss.item() * every:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
