"""The dataset keeps what it has decoded: it fills in the first epoch and stops."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Decoded(Dataset):
    def __init__(self, length, width):
        self.length = length
        self.width = width
        self.cache = {}

    def __len__(self):
        return self.length

    def decode(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(self.width, generator=generator).cumsum(0) / 8

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = self.decode(index)
        return self.cache[index], self.cache[index].mean().gt(0).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Decoded(64, 1024), batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < args.steps:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
            done += 1
            if done == args.steps:
                break
        print(f"{done} {loss.item():.4f}")


if __name__ == "__main__":
    main()
