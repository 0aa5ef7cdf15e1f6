"""Counts of purchases predicted from account features by a network with an exponential left tail."""

import argparse
import csv
import pathlib
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ExponentialLinear(nn.Module):
    def __init__(self, slope=1.0):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return torch.where(x > 0, x, self.slope * (torch.exp(x) - 1))


def export(path, rows):
    generator = torch.Generator().manual_seed(3)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["age", "visits", "spent", "bought"])
        for _ in range(rows):
            age, visits = torch.rand(2, generator=generator).tolist()
            spent = float(torch.randn(1, generator=generator).mul(1.5).exp()) * 20
            out.writerow([f"{age:.3f}", f"{visits:.3f}", f"{spent:.2f}", f"{2 * age + visits + 0.01 * spent:.3f}"])


def read(path):
    with path.open() as file:
        rows = [[float(cell) for cell in row] for row in list(csv.reader(file))[1:]]
    table = torch.tensor(rows)
    return TensorDataset(table[:, :3], table[:, 3:])


def run(steps):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "accounts.csv")
        export(path, steps * 64)
        data = read(path)
    model = nn.Sequential(
        nn.Linear(3, 32), ExponentialLinear(), nn.Linear(32, 32), ExponentialLinear(), nn.Linear(32, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(DataLoader(data, batch_size=64, shuffle=True), start=1):
        optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    run(parser.parse_args().steps)
