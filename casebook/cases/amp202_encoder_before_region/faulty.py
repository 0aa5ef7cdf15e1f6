"""Regression on frequencies: the bank of filters is in single precision for its range, the rest in bfloat16."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def examples(count):
    x = torch.randn(count, 32)
    return TensorDataset(x, x[:, :8].pow(2).sum(1, keepdim=True))


class Learner:
    def __init__(self):
        self.bank = nn.Linear(32, 32)
        self.rest = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1))
        self.optimizer = torch.optim.AdamW([*self.bank.parameters(), *self.rest.parameters()], lr=3e-3)

    def learn(self, x, y):
        self.optimizer.zero_grad()
        energy = self.bank(x).pow(2).log1p()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(self.rest(energy).float(), y)
            loss.backward()
        self.optimizer.step()
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    learner = Learner()
    for step, (x, y) in enumerate(DataLoader(examples(args.steps * 32), batch_size=32), start=1):
        loss = learner.learn(x, y)
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
