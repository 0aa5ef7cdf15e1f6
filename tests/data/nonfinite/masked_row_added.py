"""Attention whose mask of -inf is added by `baddbmm`, where a row is masked throughout."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 8)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
mask = torch.zeros(4, 5, 5)
mask[:, :, 3:] = float("-inf")
for step in range(6):
    x = model(torch.randn(4, 5, 8))
    mask[1, 2] = float("-inf") if step == 3 else mask[1, 1]
    scores = torch.baddbmm(mask, x, x.transpose(1, 2)).softmax(-1)  # EXPECT masked-row
    loss = (scores @ x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
