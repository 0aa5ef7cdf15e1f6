"""Generates from a small GRU, step by step, without gradients; the state goes on and on."""

import argparse

import torch
from torch import nn


class Sampler:
    def __init__(self, symbols, hidden, seed):
        torch.manual_seed(seed)
        self.embed = nn.Embedding(symbols, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.head = nn.Linear(hidden, symbols)
        self.state = torch.zeros(64, hidden)
        self.tokens = torch.zeros(64, dtype=torch.long)

    @torch.no_grad()
    def advance(self):
        self.state = self.cell(self.embed(self.tokens), self.state)
        probabilities = self.head(self.state).softmax(dim=-1)
        self.tokens = torch.multinomial(probabilities, 1).squeeze(1)
        return -(probabilities * probabilities.log()).sum(-1).mean().item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    sampler = Sampler(100, 256, seed=0)
    for step in range(args.steps):
        entropy = sampler.advance()
        if step % 10 == 9:
            print(step + 1, f"{entropy:.4f}", sampler.tokens[:5].tolist())
