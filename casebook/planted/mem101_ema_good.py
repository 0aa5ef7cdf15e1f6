"""A running mean of a diagnostic, smoothed with a decay, that is never sent backward."""

import torch
from torch import nn
from torch.nn import functional as F

encoder = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 64))
head = nn.Linear(64, 10)
parameters = [*encoder.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-3)
smoothed = 0.0

for step in range(100_000):
    features, labels = torch.randn(512, 128), torch.randint(0, 10, (512,))
    embedding = encoder(features)
    loss = F.cross_entropy(head(embedding), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    shifted = encoder(features + 0.01)
    drift = 1 - F.cosine_similarity(shifted, embedding.detach()).mean()
    smoothed = 0.99 * smoothed + 0.01 * drift.item()
    if step % 100 == 0:
        print(f"{step} loss {loss.item():.4f} drift {float(smoothed):.5f}")
