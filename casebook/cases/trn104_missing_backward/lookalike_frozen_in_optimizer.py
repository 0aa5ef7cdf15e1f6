"""A frozen first layer stays in the optimizer's list: it asks for no gradient and gets none."""

import argparse

import torch
from torch import nn


def pretrained(width):
    layer = nn.Linear(40, width)
    nn.init.orthogonal_(layer.weight)
    return layer


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(pretrained(160), nn.ReLU(), nn.Linear(160, 3))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(1, steps + 1):
        x = torch.randn(128, 40)
        y = x[:, :3].argmax(dim=1)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
