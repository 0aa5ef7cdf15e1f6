"""Robust accuracy: the evaluation itself takes gradients, with respect to its inputs."""

import argparse

import torch
from torch import nn


def perturb(model, x, y, epsilon):
    x = x.clone().requires_grad_(True)
    loss = nn.functional.cross_entropy(model(x), y)
    (gradient,) = torch.autograd.grad(loss, x)
    return (x + epsilon * gradient.sign()).detach()


def evaluate_robustness(model, batches, epsilon):
    model.eval()
    clean = robust = total = 0
    for x, y in batches:
        attacked = perturb(model, x, y, epsilon)
        with torch.no_grad():
            clean += (model(x).argmax(dim=1) == y).sum().item()
            robust += (model(attacked).argmax(dim=1) == y).sum().item()
        total += len(y)
    return clean / total, robust / total


def stream(steps, rule):
    for _ in range(steps):
        x = torch.randn(256, 32)
        yield x, (x @ rule).argmax(dim=1)


def main(steps):
    torch.manual_seed(0)
    rule = torch.randn(32, 3)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, y in stream(40, rule):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    for epsilon in (0.0, 0.1):
        print(epsilon, *evaluate_robustness(model, stream(steps // 2, rule), epsilon))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
