"""A gated unit that mixes what it has seen with what it sees; written by hand after a paper."""

import argparse

import torch
from torch import nn


class Unit(nn.Module):
    def __init__(self, features, width, open_more=0.9):
        super().__init__()
        self.gate, self.propose = nn.Linear(features + width, width), nn.Linear(features + width, width)
        self.open_more = open_more

    def forward(self, x, state):
        both = torch.cat([x, state], dim=1)
        gate = torch.sigmoid(self.gate(both))
        gate.mul_(self.open_more)
        return gate * state + (1 - gate) * torch.tanh(self.propose(both))


class Reader(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.unit, self.out = Unit(features, width), nn.Linear(width, 1)
        self.width = width

    def forward(self, sequence):
        state = sequence.new_zeros(sequence.shape[0], self.width)
        for x in sequence.unbind(dim=1):
            state = self.unit(x, state)
        return self.out(state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    reader = Reader(3, 24)
    optimizer = torch.optim.Adam(reader.parameters(), lr=5e-3)
    for step in range(1, args.steps + 1):
        sequence = torch.randn(32, 10, 3)
        loss = nn.functional.mse_loss(reader(sequence), sequence[:, :, 0].amax(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
