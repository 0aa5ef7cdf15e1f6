"""Grades essays; a context manager puts the model into evaluation and back."""

import argparse
import contextlib

import torch
from torch import nn


@contextlib.contextmanager
def evaluating(model):
    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield model
    finally:
        model.train(before)


def batch(size=32):
    grades = torch.randint(0, 5, (size,))
    return torch.randint(0, 200, (size, 40)) + 200 * grades[:, None], grades


def validate(model, held_out):
    total = 0.0
    with evaluating(model):
        for essays, grades in held_out:
            total += nn.functional.cross_entropy(model(essays), grades).item()
    return total / len(held_out)


def main(steps):
    torch.manual_seed(1)
    model = nn.Sequential(nn.EmbeddingBag(1000, 64, mode="mean"), nn.BatchNorm1d(64), nn.Dropout(0.4), nn.Linear(64, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    held_out = [batch() for _ in range(4)]
    for step in range(1, steps + 1):
        essays, grades = batch()
        loss = nn.functional.cross_entropy(model(essays), grades)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step} {validate(model, held_out):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
