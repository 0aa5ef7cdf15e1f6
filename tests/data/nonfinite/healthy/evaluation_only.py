import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 8).eval()
with torch.no_grad():
    for _ in range(12):
        out = net(torch.randn(4, 8))
        lowest = out.masked_fill(out < 0, float("-inf")).max()
