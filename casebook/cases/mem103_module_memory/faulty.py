"""A tagger with a slow memory of what it has read."""

import argparse

import torch
from torch import nn


class MemoryTagger(nn.Module):
    def __init__(self, width=96, slots=16, tags=5):
        super().__init__()
        self.read = nn.Linear(width + slots, width)
        self.write = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, slots))
        self.classify = nn.Linear(width, tags)
        self.memory = torch.zeros(1, slots)

    def forward(self, x):
        context = self.memory.detach().expand(len(x), -1)
        hidden = torch.relu(self.read(torch.cat([x, context], dim=1)))
        self.memory = 0.9 * self.memory + 0.1 * self.write(hidden).mean(dim=0, keepdim=True)
        return self.classify(hidden)


class Stream:
    def __init__(self, width, tags, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.rule = torch.randn(width, tags, generator=self.generator)

    def __iter__(self):
        while True:
            x = torch.randn(128, len(self.rule), generator=self.generator)
            yield x, (x @ self.rule).argmax(dim=1)


def run(model, stream, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, (x, y) in zip(range(1, steps + 1), stream):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    run(MemoryTagger(), Stream(96, 5, seed=1), args.steps)
