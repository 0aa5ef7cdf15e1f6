"""Scores are walked through one by one as plain numbers, taken out of the tensor once."""

import argparse

import torch
from torch import nn


def longest_run(values, least):
    best = run = 0
    for i in range(len(values)):
        run = run + 1 if values[i] > least else 0
        best = max(best, run)
    return best


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        x = torch.randn(64, 8)
        predicted = model(x)
        loss = nn.functional.mse_loss(predicted, x[:, :1].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            run = longest_run(predicted.detach().squeeze(1).tolist(), 0.8)
            print(f"{step} {loss.item():.4f} longest run {run}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
