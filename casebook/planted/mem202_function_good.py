"""Language model with a running estimate of its confidence."""

import torch
import torch.nn.functional as F
from torch import nn


def train(loader, vocabulary, width=256, lr=1e-3):
    model = nn.Sequential(nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    confidence = 0.0
    for tokens, following in loader:
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        confidence = 0.99 * confidence + 0.01 * F.softmax(logits.detach(), dim=-1).amax(-1).mean().item()
    return confidence
