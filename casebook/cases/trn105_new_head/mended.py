"""Takes a network trained for ten classes and gives it a new head for three."""

import argparse

import torch
from torch import nn


class Network(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.body(x))


class FineTuning:
    def __init__(self, network, rate):
        self.network = network
        self.optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)

    def replace_head(self, classes):
        self.network.head = nn.Linear(self.network.head.in_features, classes)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=rate, momentum=0.9)

    def run(self, batches):
        for number, (x, y) in enumerate(batches, start=1):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.network(x), y)
            loss.backward()
            self.optimizer.step()
            if number % 10 == 0:
                print(f"batch {number} loss {loss.item():.4f}")


def batches(count):
    for _ in range(count):
        x = torch.randn(128, 24)
        yield x, x[:, :3].argmax(dim=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    tuning = FineTuning(Network(classes=10), rate=0.05)
    tuning.replace_head(3)
    tuning.run(batches(args.steps))
