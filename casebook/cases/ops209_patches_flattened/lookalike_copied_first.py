"""Copies after it has permuted, and then merges."""

import argparse

import torch
from torch import nn


class Fold(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.out = nn.Linear(4 * features, 1)

    def forward(self, x):
        size, length, features = x.shape
        turned = x.transpose(1, 2).contiguous()
        return self.out(turned.view(size, features * length)[:, : 4 * features])


def main(steps):
    torch.manual_seed(0)
    model = Fold(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(1, steps + 1):
        x = torch.randn(32, 4, 6)
        loss = nn.functional.mse_loss(model(x), x[:, 0, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
