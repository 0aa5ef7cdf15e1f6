"""Plain gradient descent, written out."""

import torch
from torch import nn


def descend(model, loader, lr):
    criterion = nn.CrossEntropyLoss()
    for inputs, labels in loader:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        loss = criterion(model(inputs), labels)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= lr * parameter.grad
    return loss.item()
