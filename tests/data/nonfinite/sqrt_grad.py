import torch
from torch import nn

torch.manual_seed(1)
w = nn.Parameter(torch.randn(4, 4))
opt = torch.optim.Adam([w], lr=0.01)


def distance(a, b):
    d = (a - b).pow(2).sum(1)
    return torch.sqrt(d)  # EXPECT root-gradient-at-zero


for step in range(10):
    a = torch.randn(8, 4)
    b = torch.randn(8, 4)
    if step == 5:
        b[3] = a[3]
    loss = distance(a @ w, b @ w).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
