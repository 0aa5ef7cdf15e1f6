"""The map of each step is drawn on, so that it has to be a new one."""

import argparse

import torch
from torch import nn


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        canvas = torch.zeros(600, 600)
        where = torch.randint(0, 600, (256, 2))
        canvas[where[:, 0], where[:, 1]] = 1.0
        smooth = nn.functional.avg_pool2d(canvas[None, None], 25, 1, 12)[0, 0]
        loss = nn.functional.mse_loss(net(where / 600).squeeze(1), 100 * smooth[where[:, 0], where[:, 1]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
