"""Works in place on what autograd has not saved: the result of a linear layer."""

import argparse

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 1)
        self.register_buffer("shift", torch.linspace(-1, 1, 32))

    def forward(self, x):
        hidden = self.first(x)
        hidden += self.shift
        return self.last(torch.relu_(hidden))


def main(steps):
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(1, steps + 1):
        x = torch.randn(32, 8)
        loss = nn.functional.mse_loss(net(x), x.abs().mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
