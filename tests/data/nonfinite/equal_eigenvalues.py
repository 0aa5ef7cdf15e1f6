"""Whitening by eigenvectors, where some channels are constant: their eigenvalues are equal."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 6)
with torch.no_grad():
    model.weight[3:] = 0
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _step in range(1):  # with weights that are NaN the next would raise
    x = model(torch.randn(16, 8))
    x = x - x.mean(0)
    cov = x.T @ x / 16 + 0.001 * torch.eye(6)
    values, vectors = torch.linalg.eigh(cov)  # EXPECT equal-values
    loss = (x @ vectors / values.sqrt()).pow(3).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
