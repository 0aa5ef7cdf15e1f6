"""A loss with a logarithm that is meant to be masked."""

import torch
from torch import nn


class RelativeLoss(nn.Module):
    def forward(self, prediction, target):
        ratio = prediction / target.clamp(min=1.0)
        error = torch.where(ratio > 0, torch.log(ratio), torch.zeros_like(ratio))
        return error.abs().mean()


def train(model, loader, optimizer):
    criterion = RelativeLoss()
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
