"""Each step's noise is new, as noise should be, and starts are kept to compare with the end."""

import argparse

import torch
from torch import nn


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        noise = torch.randn(128, 16)
        state = torch.zeros(128, 16)
        for _ in range(3):
            state = state + 0.3 * (net(state + noise) - state)
        loss = nn.functional.mse_loss(state, noise.sign())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
