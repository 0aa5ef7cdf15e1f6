"""A training step of about as many milliseconds as the argument says, on one core: a perceptron that grows in width."""

import sys

import torch
from clock import timed
from torch import nn
from torch.nn import functional as F

SIZES = {
    "0.5": (2, 32, 16, 14_000),
    "2": (3, 256, 80, 4_000),
    "10": (3, 512, 160, 800),
    "50": (4, 1024, 192, 160),
    "200": (4, 1536, 512, 48),
}
"""By milliseconds: layers, width, samples, steps of a run."""

layers, width, samples, steps = SIZES[sys.argv[1]]
torch.manual_seed(0)
hidden = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
model = nn.Sequential(*hidden, nn.Linear(width, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(samples, width), torch.randint(0, 10, (samples,))


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    timed(step, steps=steps)
