"""The sum takes part in training: each step goes back through it, and carries on without its graph."""

import argparse

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.MultiheadAttention(width, 2, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.mix(y, y, y, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Encoder(nn.Module):
    def __init__(self, width=16, depth=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, width)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Trainer:
    def __init__(self):
        self.model = Encoder()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.drift = 0.0

    def step(self, x):
        loss = nn.functional.mse_loss(self.model(x), x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for scale in (0.8, 0.9, 1.1):
            self.drift = self.drift + (self.model(x * scale) - self.model(x)).abs().mean()
        self.optimizer.zero_grad()
        self.drift.backward()
        self.optimizer.step()
        self.drift = self.drift.detach() * 0.9
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    trainer = Trainer()
    for step in range(args.steps):
        value = trainer.step(torch.randn(32, 12, 16))
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {value:.4f} drift {float(trainer.drift):.4f}")


if __name__ == "__main__":
    main()
