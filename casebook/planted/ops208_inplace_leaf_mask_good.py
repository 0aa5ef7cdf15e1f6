"""Prune a network by magnitude while it trains."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class PrunedMLP(nn.Module):
    def __init__(self, sizes=(784, 512, 256, 10)):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


def masks_for(net, fraction):
    masks = {}
    for name, p in net.named_parameters():
        if p.dim() > 1:
            k = max(1, int(p.numel() * fraction))
            cut = p.detach().abs().flatten().kthvalue(k).values
            masks[name] = (p.detach().abs() > cut).float()
    return masks


def apply_masks(net, masks):
    # in place, so no memory is needed
    with torch.no_grad():
        for layer_name, layer in net.named_modules():
            key = f"{layer_name}.weight"
            if key in masks and isinstance(layer, nn.Linear):
                layer.weight *= masks[key]


def train(epochs=20):
    x, y = torch.randn(4096, 784), torch.randint(0, 10, (4096,))
    loader = DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True)
    net = PrunedMLP()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for xb, yb in loader:
            loss = F.cross_entropy(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        apply_masks(net, masks_for(net, min(0.9, 0.05 * epoch + 0.01)))
    return net


if __name__ == "__main__":
    train()
