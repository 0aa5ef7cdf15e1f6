"""Whether a position is even, with positions in single precision."""

import argparse
import math

import torch
from torch import nn


class Positions(nn.Module):
    def __init__(self, width, dtype):
        super().__init__()
        self.width, self.dtype = width, dtype

    def forward(self, start, length):
        places = torch.arange(start, start + length, dtype=torch.float32)
        rate = math.pi / 2.0 ** torch.arange(self.width // 2)
        angle = places.float()[:, None] * rate
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


class Parity(nn.Module):
    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.positions = Positions(32, dtype)
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, start, length):
        return self.head(self.positions(start, length))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Parity()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(1, args.steps + 1):
        start = int(torch.randint(512, 1024, ()))
        label = (start + torch.arange(64)) % 2
        loss = nn.functional.cross_entropy(model(start, 64), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
