"""Measures how two losses pull at a shared trunk, throws those gradients away, and then trains on their sum."""

import argparse

import torch
from torch import nn


def flat_gradient(loss, parameters):
    loss.backward(retain_graph=True)
    return torch.cat([p.grad.flatten() for p in parameters])


def main(steps):
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(12, 32), nn.Tanh())
    heads = nn.ModuleDict({"level": nn.Linear(32, 1), "sign": nn.Linear(32, 2)})
    optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.05)
    shared = list(trunk.parameters())
    for step in range(1, steps + 1):
        x = torch.randn(64, 12)
        features = trunk(x)
        level = nn.functional.mse_loss(heads["level"](features), x[:, :1])
        sign = nn.functional.cross_entropy(heads["sign"](features), (x[:, 1] > 0).long())
        optimizer.zero_grad()
        if step % 10 == 0:
            first = flat_gradient(level, shared)
            optimizer.zero_grad()
            second = flat_gradient(sign, shared)
            optimizer.zero_grad()
            print(f"{step} agreement {nn.functional.cosine_similarity(first, second, dim=0).item():.3f}")
        (level + sign).backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
