"""A module that happens to be called amp: it scales amplitudes."""

import argparse
import types

import torch
from torch import nn

amp = types.SimpleNamespace(autocast=lambda x: x / x.abs().amax(1, keepdim=True), GradScaler=lambda k: lambda g: k * g)


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 1))
    scale = amp.GradScaler(0.5)
    for parameter in net.parameters():
        parameter.register_hook(scale)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    for step in range(1, steps + 1):
        x = amp.autocast(torch.randn(64, 18))
        loss = nn.functional.mse_loss(net(x), x.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
