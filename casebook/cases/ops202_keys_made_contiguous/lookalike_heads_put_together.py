"""Heads are put together again by `view`, which needs them in order."""

import argparse

import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.split, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        size, length, width = x.shape
        q, k, v = self.split(x).view(size, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(3) @ v
        return self.out(mixed.transpose(1, 2).contiguous().view(size, length, width))


def main(steps):
    torch.manual_seed(0)
    model = Heads(24, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        x = torch.randn(8, 16, 24)
        loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True).expand_as(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
