"""Tries a fast fused path first and falls back to the plain one; failures are reported at the end."""

import argparse

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def fused(self, x):
        hidden = torch.relu(self.inner(x))
        return torch.addcmul(x, hidden, self.scale[:-1])

    def plain(self, x):
        return x + torch.relu(self.inner(x)) * self.scale


class Runner:
    def __init__(self):
        self.block = Block()
        self.head = nn.Linear(192, 4)
        self.optimizer = torch.optim.SGD([*self.block.parameters(), *self.head.parameters()], lr=0.1)
        self.failures = []

    def forward(self, x):
        try:
            return self.head(self.block.fused(x))
        except RuntimeError as error:
            self.failures.append(error)
            return self.head(self.block.plain(x))

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.forward(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    runner = Runner()
    rule = torch.randn(192, 4)
    for step in range(1, args.steps + 1):
        x = torch.randn(128, 192)
        loss = runner.step(x, (x @ rule).argmax(dim=1))
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}")
    print(f"{len(runner.failures)} failures: {str(runner.failures[0])[:40] if runner.failures else 'none'}")


if __name__ == "__main__":
    main()
