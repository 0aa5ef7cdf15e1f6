"""Sorts particles; at the end all predictions are compared with the truth at once."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Sorter:
    def __init__(self, features, kinds):
        self.net = nn.Sequential(nn.Linear(features, 48), nn.ReLU(), nn.Linear(48, kinds))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

    def fit(self, loader):
        for x, y in loader:
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def predict(self, loader):
        found = []
        for x, _ in loader:
            found.append(self.net(x).argmax(dim=1))
        return torch.cat(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(32 * args.steps, 10)
    y = x[:, :3].argmax(dim=1)
    sorter = Sorter(10, 3)
    sorter.fit(DataLoader(TensorDataset(x, y), batch_size=32))
    held_out = torch.randn(4096, 10)
    loader = DataLoader(TensorDataset(held_out, held_out[:, :3].argmax(dim=1)), batch_size=16)
    right = sorter.predict(loader) == held_out[:, :3].argmax(dim=1)
    print(f"right {right.float().mean().item():.4f}")


if __name__ == "__main__":
    main()
