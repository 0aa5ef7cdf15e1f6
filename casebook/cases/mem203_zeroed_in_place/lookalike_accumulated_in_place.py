"""Gradients live on through four micro-batches on purpose, and are then let go."""

import argparse

import torch
from torch import nn


def loss_of(model, x, rule):
    return nn.functional.cross_entropy(model(x), (x @ rule).argmax(dim=1))


def update(model, optimizer, rule, micro_batches):
    total = 0.0
    for _ in range(micro_batches):
        loss = loss_of(model, torch.randn(64, 64), rule) / micro_batches
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--accumulate", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rule = torch.randn(64, 4)
    for step in range(1, args.steps + 1):
        loss = update(model, optimizer, rule, args.accumulate)
        if step % 10 == 0:
            print(f"update {step} loss {loss:.4f}")


if __name__ == "__main__":
    main()
