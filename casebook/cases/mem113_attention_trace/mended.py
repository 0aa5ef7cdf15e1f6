"""Follows what one query of one head looks at while a small attention model learns to copy."""

import argparse

import torch
from torch import nn


class CopyModel(nn.Module):
    def __init__(self, symbols=32, width=32, heads=4, length=32):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.place = nn.Parameter(torch.randn(length, width) / 4)
        self.mix = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, symbols)
        self.heads = heads
        self.weights = None

    def forward(self, tokens):
        x = self.embed(tokens) + self.place
        batch, length, width = x.shape
        query, key, value = self.mix(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.weights = (query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5).softmax(dim=-1)
        return self.head((self.weights @ value).transpose(1, 2).reshape(batch, length, width))


class Probe:
    def __init__(self):
        self.trace = []

    def observe(self, model):
        self.trace.append(model.weights.detach()[0, 0, 0].clone())

    def sharpness(self):
        return self.trace[-1].max().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, probe = CopyModel(), Probe()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        tokens = torch.randint(0, 32, (16, 32))
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(1, dims=1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probe.observe(model)
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss.item():.4f} sharpness {probe.sharpness():.4f}")


if __name__ == "__main__":
    main()
