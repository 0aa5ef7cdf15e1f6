"""Trains on recordings in order of their length, each batch padded to its longest."""

import argparse

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


def padded(length):
    """What a batch is padded to."""
    return -(-length // 8192) * 8192


def lengths(count):
    generator = torch.Generator().manual_seed(0)
    return sorted(torch.randint(1000, 6000, (count,), generator=generator).tolist())


class Listener(nn.Module):
    def __init__(self, bands=16, width=256):
        super().__init__()
        self.first, self.second = nn.Linear(bands, width), nn.Linear(width, 16)

    def forward(self, sound):
        return self.second(torch.relu(self.first(sound)))


def train_step(model, optimizer, length):
    sound = torch.randn(4, padded(length), 16, device="cuda")
    loss = (model(sound) - sound).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    args = arguments()
    torch.manual_seed(0)
    model = Listener().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, length in enumerate(lengths(args.steps), start=1):
        loss = train_step(model, optimizer, 4 * length)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
