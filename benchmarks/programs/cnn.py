"""A training step of about 5 ms: a small convolutional network with SGD."""

import torch
from clock import timed
from torch import nn
from torch.nn import functional as F


def block(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()


torch.manual_seed(0)
model = nn.Sequential(
    *block(3, 16), nn.MaxPool2d(2), *block(16, 32), nn.MaxPool2d(2), *block(32, 64),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x, y = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    timed(step, steps=1200)
