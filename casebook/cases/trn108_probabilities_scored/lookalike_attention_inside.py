"""A softmax within the network weighs the frames; the scores themselves stay raw."""

import argparse

import torch
from torch import nn


class Pooling(nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.weigh = nn.Linear(16, 1)
        self.decide = nn.Linear(16, kinds)

    def forward(self, frames):
        weights = self.weigh(frames).softmax(dim=1)
        return self.decide((weights * frames).sum(dim=1))


def main(steps):
    torch.manual_seed(0)
    model, criterion = Pooling(4), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, steps + 1):
        kind = torch.randint(0, 4, (32,))
        frames = torch.randn(32, 20, 16)
        frames[torch.arange(32), 3, kind] += 6.0
        loss = criterion(model(frames), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
