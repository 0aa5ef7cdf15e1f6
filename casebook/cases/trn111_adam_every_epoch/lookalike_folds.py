"""Cross validation: every fold has a new model, and so a new optimizer."""

import argparse

import torch
from torch import nn


def fit(model, x, y, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main(steps, folds=4):
    torch.manual_seed(0)
    x = torch.randn(160, 12)
    y = x[:, :2].prod(1, keepdim=True)
    parts = torch.arange(160).chunk(folds)
    for number in range(folds):
        inside = torch.cat([part for k, part in enumerate(parts) if k != number])
        model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1))
        trained = fit(model, x[inside], y[inside], steps // folds)
        with torch.no_grad():
            outside = nn.functional.mse_loss(model(x[parts[number]]), y[parts[number]]).item()
        print(f"fold {number} {trained:.4f} {outside:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
