"""Trains with a fresh random gradient mask on the first layer in every step."""

import argparse

import torch
from torch import nn


class MaskedTrainer:
    def __init__(self, width, keep):
        self.first = nn.Linear(width, 256)
        self.last = nn.Linear(256, 1)
        self.keep = keep
        self.optimizer = torch.optim.SGD([*self.first.parameters(), *self.last.parameters()], lr=0.02)

    def apply_mask(self):
        mask = (torch.rand_like(self.first.weight) < self.keep).float()
        self.first.weight.register_hook(lambda gradient: gradient * mask)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))

    def step(self, x, y):
        self.apply_mask()
        loss = nn.functional.mse_loss(self.forward(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--keep", type=float, default=0.95)
    args = parser.parse_args()
    torch.manual_seed(0)
    trainer = MaskedTrainer(width=128, keep=args.keep)
    rule = torch.randn(128, 1) / 11
    for step in range(1, args.steps + 1):
        x = torch.randn(64, 128)
        loss = trainer.step(x, x @ rule)
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    main()
