import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        gate = torch.sigmoid(self.first(x))
        gate *= 2.0
        out = self.norm(self.second(x))
        out += x
        return F.relu(out) * gate


def train(model, loader, optimizer, device):
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        loss = F.cross_entropy(model(images).mean((2, 3)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
