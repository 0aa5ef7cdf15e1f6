"""Fits a field to samples; batches are small and an update waits for several of them."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(3 * x)


def field(width, depth):
    layers = [nn.Linear(2, width), Sine()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), Sine()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


class Fit:
    def __init__(self, every):
        self.every = every
        self.model = field(64, 2)
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def run(self, loader):
        self.optimizer.zero_grad()
        total, updates = 0.0, 0
        for number, (x, y) in enumerate(loader, start=1):
            total = total + self.criterion(self.model(x), y) / self.every
            if number % self.every == 0:
                total.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                updates += 1
                if updates % 6 == 0:
                    print(f"update {updates} loss {total.item():.4f}")
                total = 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.rand(args.steps * args.every * 1024, 2)
    y = torch.sin(6 * x).prod(1, keepdim=True)
    Fit(args.every).run(DataLoader(TensorDataset(x, y), batch_size=1024))


if __name__ == "__main__":
    main()
