"""Compresses rows of sensor values; an experiment object runs the epochs and keeps the curve."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self, sensors, code):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(sensors, 48), nn.ReLU(), nn.Linear(48, code))
        self.decode = nn.Sequential(nn.Linear(code, 48), nn.ReLU(), nn.Linear(48, sensors))

    def forward(self, x):
        return self.decode(self.encode(x))


class Experiment:
    def __init__(self, autoencoder, rate):
        self.autoencoder, self.curve = autoencoder, []
        self.optimizer = torch.optim.Adam(autoencoder.parameters(), lr=rate)

    def epoch(self, loader):
        total = 0.0
        for (rows,) in loader:
            loss = nn.functional.l1_loss(self.autoencoder(rows), rows)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        self.curve.append(total / len(loader))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    rows = torch.randn(160, 4) @ torch.randn(4, 32)
    loader = DataLoader(TensorDataset(rows), batch_size=32, shuffle=True)
    experiment = Experiment(Autoencoder(32, 4), rate=4e-3)
    for _ in range(max(1, args.steps // len(loader))):
        experiment.epoch(loader)
    print(" ".join(f"{loss:.3f}" for loss in experiment.curve))


if __name__ == "__main__":
    main()
