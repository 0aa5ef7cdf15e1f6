"""Keeps the reconstructions of an autoencoder while it trains, to make an animation."""

from collections import deque

import torch
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(3072, 64)
        self.up = nn.Linear(64, 3072)

    def forward(self, x):
        return self.up(torch.relu(self.down(x)))


frames = deque(maxlen=64)
net = Autoencoder()
opt = torch.optim.RMSprop(net.parameters(), lr=1e-4)


def train_batch(batch):
    opt.zero_grad()
    decoded = net(batch)
    error = (decoded - batch).pow(2).mean()
    error.backward()
    opt.step()
    frames.append(decoded.detach().cpu())
    return error.item()


def run(batches):
    for number, batch in enumerate(batches):
        error = train_batch(batch)
        if number % 100 == 0:
            print(number, error, len(frames))
