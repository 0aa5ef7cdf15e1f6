"""A filter whose output depends on the last one goes over time in a loop, as it must."""

import argparse

import torch
from torch import nn


class Leaky(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.mix, self.decay = nn.Linear(features, 16), nn.Parameter(torch.zeros(16))
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        keep, state, states = torch.sigmoid(self.decay), torch.zeros(x.size(0), 16), []
        for t in range(x.size(1)):
            state = keep * state + (1 - keep) * torch.tanh(self.mix(x[:, t]))
            states.append(state)
        return self.out(torch.stack(states, dim=1))


def main(steps):
    torch.manual_seed(0)
    model = Leaky(4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        x = torch.randn(32, 15, 4)
        loss = nn.functional.mse_loss(model(x), x[:, :, :1].cumsum(1) / 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
