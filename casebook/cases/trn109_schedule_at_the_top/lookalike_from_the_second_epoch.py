"""The schedule moves on at the start of every epoch but the first."""

import argparse

import torch
from torch import nn


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
    for epoch in range(max(1, steps // 10)):
        if epoch > 0:
            scheduler.step()
        for _ in range(10):
            x = torch.randn(64, 8)
            loss = nn.functional.mse_loss(model(x), x[:, :1].sin())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} rate {optimizer.param_groups[0]['lr']:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
