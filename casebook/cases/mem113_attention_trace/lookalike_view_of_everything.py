"""A flat view of the last logits is kept for the report: it is as large as what it looks at, and replaced."""

import argparse

import torch
from torch import nn


class Report:
    def __init__(self):
        self.flat = None
        self.rows = []

    def take(self, logits):
        self.flat = logits.detach().view(-1)
        self.rows.append(self.flat.std().item())


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    report = Report()
    rule = torch.randn(32, 64)
    for step in range(1, steps + 1):
        x = torch.randn(128, 32)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, (x @ rule).argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report.take(logits)
        if step % 10 == 0:
            print(f"{step} {loss.item():.4f} {report.rows[-1]:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
