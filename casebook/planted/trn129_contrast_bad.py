"""Two views of a picture are drawn together; the scale of their cosine is kept above zero."""

import torch
import torch.nn.functional as F
from torch import nn


class Contrast(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 16))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, one, other):
        torch.clamp(self.scale, min=1e-6)
        first, second = (F.normalize(self.body(x), dim=-1) for x in (one, other))
        scores = self.scale * first @ second.t()
        return F.cross_entropy(scores, torch.arange(len(one), device=one.device))


def fit(loader, epochs):
    contrast = Contrast(48)
    optimizer = torch.optim.AdamW(contrast.parameters())
    for _ in range(epochs):
        for one, other in loader:
            loss = contrast(one, other)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
