"""A schedule of one's own sets the rate for the step that follows, so that it comes first."""

import argparse

import torch
from torch import nn


class WarmUp:
    def __init__(self, optimizer, peak, steps):
        self.optimizer, self.peak, self.steps, self.count = optimizer, peak, steps, 0

    def step(self):
        self.count += 1
        rate = self.peak * min(1.0, self.count / self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scheduler = WarmUp(optimizer, peak=0.1, steps=20)
    for step in range(1, steps + 1):
        scheduler.step()
        x = torch.randn(64, 8)
        loss = nn.functional.mse_loss(model(x), x[:, :1].sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
