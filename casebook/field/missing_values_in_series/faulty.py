"""A forecaster for a daily series that is read from a table with gaps."""

import argparse
import csv
import math
import random
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_series(path, days):
    rng = random.Random(12)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["ds", "y"])
        for day in range(days):
            y = 10 + 3 * math.sin(day / 7 * 6.283) + rng.gauss(0, 0.3)
            rows.writerow([day, "" if rng.random() < 0.002 else f"{y:.3f}"])


def read_series(path):
    with path.open() as file:
        return torch.tensor([float(row["y"] or "nan") for row in csv.DictReader(file)])


class Windows(Dataset):
    def __init__(self, series, inward=28, outward=7):
        self.series, self.inward, self.outward = series, inward, outward

    def __len__(self):
        return len(self.series) - self.inward - self.outward + 1

    def __getitem__(self, start):
        middle = start + self.inward
        return self.series[start:middle], self.series[middle : middle + self.outward]


class NBeatsBlock(nn.Module):
    def __init__(self, inward=28, outward=7, width=64):
        super().__init__()
        self.stack = nn.Sequential(nn.Linear(inward, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.backcast, self.forecast = nn.Linear(width, inward), nn.Linear(width, outward)

    def forward(self, x):
        h = self.stack(x)
        return x - self.backcast(h), self.forecast(h)


class Forecaster(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.blocks = nn.ModuleList(NBeatsBlock() for _ in range(blocks))

    def forward(self, x):
        total = 0
        for block in self.blocks:
            x, forecast = block(x)
            total = total + forecast
        return total

    def fit(self, windows, max_steps, lr=1e-3):
        optimizer = torch.optim.Adam(self.parameters(), lr=lr)
        loader = iter(DataLoader(windows, batch_size=32, shuffle=True))
        for step in range(1, max_steps + 1):
            past, future = next(loader)
            loss = nn.functional.l1_loss(self(past), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"max_steps {step}/{max_steps} train_loss={loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "series.csv")
        write_series(path, args.steps * 32 + 200)
        series = read_series(path)
    Forecaster().fit(Windows(series), args.steps)


if __name__ == "__main__":
    main()
