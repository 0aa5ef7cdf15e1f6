"""Masked scores that go into a maximum, a softmax and a logsumexp, and the others into a sum."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 6)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
closed = torch.tensor([True, False, False, False, True, False])
for _step in range(6):
    scores = model(torch.randn(16, 8)).masked_fill(closed, float("-inf"))
    loss = scores.logsumexp(-1).mean() - scores.amax(-1).mean() - scores.log_softmax(-1)[:, ~closed].mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
