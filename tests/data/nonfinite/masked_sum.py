"""Label smoothing over all classes, where some are masked by -inf: their log-probabilities are averaged with the
others."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 6)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
closed = torch.tensor([True, False, False, False, True, False])
for _step in range(6):
    scores = model(torch.randn(16, 8)).masked_fill(closed, float("-inf"))
    logp = scores.log_softmax(-1)
    loss = -0.9 * logp[:, 2].mean()
    loss = loss - 0.1 * logp.mean()  # EXPECT masked-sum
    opt.zero_grad()
    loss.backward()
    opt.step()
