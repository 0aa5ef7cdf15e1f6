import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 1))
opt = torch.optim.AdamW(net.parameters())
for i in range(10):
    x = torch.randn(16, 6)
    lam = random.random()
    x = lam * x + (1 - lam) * x[torch.randperm(16)]
    out = net(x)
    gate = (out > 0).float() * (i != 6)
    loss = (out.square() / gate.sum()).mean()  # EXPECT division-by-zero
    opt.zero_grad()
    loss.backward()
    opt.step()
