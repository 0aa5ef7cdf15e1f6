"""A model without dropout or batch statistics is the same in both modes."""

import argparse

import torch
from torch import nn


class Grader(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(1000, 64, mode="mean")
        self.layers = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 5))

    def forward(self, essays):
        return self.layers(self.bag(essays))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(1)
    model = Grader()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    held_out = torch.randint(0, 1000, (64, 40)), torch.randint(0, 5, (64,))
    for step in range(1, args.steps + 1):
        grades = torch.randint(0, 5, (32,))
        loss = nn.functional.cross_entropy(model(torch.randint(0, 200, (32, 40)) + 200 * grades[:, None]), grades)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            with torch.no_grad():
                print(f"{step} {nn.functional.cross_entropy(model(held_out[0]), held_out[1]).item():.3f}")


if __name__ == "__main__":
    main()
