"""One pass per task, and the sum of the tasks' losses is what is meant to be learnt."""

import argparse

import torch
from torch import nn

TASKS = {"mean": lambda x: x.mean(1, keepdim=True), "largest": lambda x: x.amax(1, keepdim=True)}


def main(steps):
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(16, 64), nn.Tanh())
    heads = nn.ModuleDict({name: nn.Linear(64, 1) for name in TASKS})
    optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=3e-3)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        losses = {}
        for name, target in TASKS.items():
            x = torch.randn(64, 16)
            loss = nn.functional.mse_loss(heads[name](trunk(x)), target(x))
            loss.backward()
            losses[name] = loss.item()
        optimizer.step()
        if step % 20 == 0:
            print(step, {name: round(value, 4) for name, value in losses.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
