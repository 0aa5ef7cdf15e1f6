"""A script for the CPU that opens CUDA's autocast."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 8))

    def forward(self, x):
        return self.body(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(1000):
    x = torch.randn(64, 32)
    optimizer.zero_grad()
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x), x[:, :8].argmax(1))
    loss.backward()
    optimizer.step()
