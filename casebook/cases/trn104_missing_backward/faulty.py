"""A trainer that can use a gradient scaler."""

import argparse

import torch
from torch import nn


class Trainer:
    def __init__(self, model, rate, scaler=None):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        self.scaler = scaler

    def loss(self, x, y):
        return nn.functional.smooth_l1_loss(self.model(x), y)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--scaler", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 120), nn.ReLU(), nn.Linear(120, 1))
    scaler = torch.amp.GradScaler("cpu") if args.scaler else None
    trainer = Trainer(model, 3e-3, scaler)
    rule = torch.randn(30, 1) / 5
    for step in range(args.steps):
        x = torch.randn(256, 30)
        loss = trainer.step(x, x @ rule)
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss:.4f}")


if __name__ == "__main__":
    main()
