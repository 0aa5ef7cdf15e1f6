"""Keeps the weights of good steps, to average them at the end."""

import argparse
import copy

import torch
from torch import nn

registry = {"snapshots": {}, "losses": {}}


def build(width):
    return nn.Sequential(nn.Linear(20, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))


def register(step, loss, model):
    registry["losses"][step] = loss
    registry["snapshots"][step] = copy.deepcopy(model.state_dict())
    for stale in set(registry["snapshots"]) - set(best_steps(3)):
        del registry["snapshots"][stale]


def best_steps(count):
    return sorted(registry["losses"], key=registry["losses"].get)[:count]


def average(steps):
    kept = [registry["snapshots"][step] for step in steps]
    return {name: torch.stack([weights[name] for weights in kept]).mean(dim=0) for name in kept[0]}


def train(steps):
    torch.manual_seed(0)
    model = build(192)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        x = torch.rand(64, 20) * 2 - 1
        y = (x**2).sum(dim=1, keepdim=True)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        register(step, loss.item(), model)
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss.item():.4f}")
    chosen = best_steps(3)
    model.load_state_dict(average(chosen))
    print("averaged", chosen)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    train(parser.parse_args().steps)
