"""The hidden state lives on the module for one sequence, with its graph, and is reset for the next."""

import argparse

import torch
from torch import nn


class Counter(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.cell = nn.RNNCell(4, width)
        self.head = nn.Linear(width, 1)
        self.hidden = None

    def reset(self):
        self.hidden = None

    def forward(self, x):
        self.hidden = self.cell(x, self.hidden)
        return self.head(self.hidden).squeeze(1)


def sequence_loss(model, batch):
    model.reset()
    for moment in batch.unbind(dim=1):
        guess = model(moment)
    return nn.functional.mse_loss(guess, batch.sum(dim=(1, 2)) / 4)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(0)
model = Counter()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(args.steps):
    loss = sequence_loss(model, torch.randn(64, 10, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"{step + 1} {loss.item():.4f}")
