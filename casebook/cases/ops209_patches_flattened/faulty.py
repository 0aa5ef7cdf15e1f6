"""Cuts pictures into patches and embeds them."""

import argparse

import torch
from torch import nn


class Patches(nn.Module):
    def __init__(self, side, width):
        super().__init__()
        self.side = side
        self.embed = nn.Linear(3 * side * side, width)

    def forward(self, pictures):
        rows, columns = pictures.shape[2] // self.side, pictures.shape[3] // self.side
        cut = pictures.reshape(pictures.shape[0], 3, rows, self.side, columns, self.side)
        moved = cut.permute(0, 2, 4, 1, 3, 5)
        flat = moved.view(pictures.shape[0], -1, 3 * self.side * self.side)
        return self.embed(flat)


class Colours(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.out = Patches(4, 32), nn.Linear(32, 3)

    def forward(self, pictures):
        return self.out(torch.relu(self.patches(pictures)).mean(dim=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Colours()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(1, args.steps + 1):
        pictures = torch.rand(16, 3, 16, 16)
        pictures[torch.arange(16), torch.arange(16) % 3] += 0.4
        loss = nn.functional.cross_entropy(model(pictures), torch.arange(16) % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
