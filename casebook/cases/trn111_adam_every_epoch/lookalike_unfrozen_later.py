"""Trains the head first; when the body is unfrozen, once, the optimizer is built for all of it."""

import argparse

import torch
from torch import nn


def main(steps):
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(12, 48), nn.ReLU()), nn.Linear(48, 1)
    model = nn.Sequential(body, head)
    body.requires_grad_(False)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        if step == steps // 2:
            body.requires_grad_(True)
            optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        x = torch.randn(64, 12)
        loss = nn.functional.mse_loss(model(x), x[:, :2].prod(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
