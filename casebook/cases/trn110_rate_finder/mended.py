"""Tries several learning rates from the same start, and then trains with the one that did best."""

import argparse
import copy

import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(10, 40), nn.ELU(), nn.Linear(40, 40), nn.ELU(), nn.Linear(40, 1))


def problem(count):
    x = torch.randn(count, 10)
    return x, (x[:, :1] * x[:, 1:2]).tanh()


def take_steps(model, rate, count):
    optimizer = torch.optim.RMSprop(model.parameters(), lr=rate)
    for _ in range(count):
        x, y = problem(64)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def find_rate(model, rates, count):
    start = copy.deepcopy(model.state_dict())
    tried = {}
    for rate in rates:
        tried[rate] = take_steps(model, rate, count)
        model.load_state_dict(start)
        print(f"rate {rate:g} gives {tried[rate]:.4f}")
    return min(tried, key=tried.get)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = network()
    rate = find_rate(model, [1e-4, 3e-3, 3e-2], args.steps // 6)
    print(f"trained with {rate:g}: {take_steps(model, rate, args.steps // 2):.4f}")
