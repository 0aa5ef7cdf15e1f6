"""Features are kept in float16 and normalised before the probe is trained."""

import torch
import torch.nn.functional as F
from torch import nn

bank = torch.load("features.pt", map_location="cpu", weights_only=True)
labels = torch.load("labels.pt", map_location="cpu", weights_only=True)
features = bank.to(torch.float16)
features = F.normalize(features, dim=1)
prior = torch.bincount(labels).half()
weight = prior.sum() / prior.clamp(min=1e-8)
probe = nn.Linear(features.size(1), len(prior))
optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
for epoch in range(100):
    loss = F.cross_entropy(probe(features.float()), labels, weight=weight.float())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
