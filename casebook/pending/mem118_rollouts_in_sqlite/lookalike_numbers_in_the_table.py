"""Training with a table in memory of what each step came to: a few numbers, and the newest picture."""

import argparse
import sqlite3

import torch
from torch import nn


class Journal:
    def __init__(self):
        self.database = sqlite3.connect(":memory:")
        self.database.execute("CREATE TABLE losses (step INTEGER PRIMARY KEY, loss REAL, norm REAL)")
        self.database.execute("CREATE TABLE picture (id INTEGER PRIMARY KEY, pixels BLOB)")

    def write(self, step, loss, norm, pixels):
        self.database.execute("INSERT INTO losses VALUES (?, ?, ?)", (step, loss, norm))
        self.database.execute("INSERT OR REPLACE INTO picture VALUES (0, ?)", (pixels.numpy().tobytes(),))

    def lowest(self):
        return self.database.execute("SELECT MIN(loss) FROM losses").fetchone()[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    journal = Journal()
    model = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 256))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        x = torch.rand(128, 256)
        restored = model(x)
        loss = nn.functional.mse_loss(restored, x)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        journal.write(step, loss.item(), norm.item(), restored.detach())
    print(f"lowest loss {journal.lowest():.4f}")


if __name__ == "__main__":
    main()
