"""Running averages of plain numbers in a dict, next to the training."""

import argparse

import torch
from torch import nn


class Averages:
    def __init__(self, decay=0.9):
        self.decay, self.values = decay, {}

    def update(self, **numbers):
        for name, number in numbers.items():
            self.values[name] = self.decay * self.values.get(name, number) + (1 - self.decay) * number


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    averages = Averages()
    for step in range(1, steps + 1):
        x = torch.randn(16, 12)
        loss = nn.functional.mse_loss(net(x), x.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averages.update(loss=loss.item(), size=x.abs().max().item())
        if step % 20 == 0:
            print(step, {name: round(value, 4) for name, value in averages.values.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
