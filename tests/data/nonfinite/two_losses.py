import torch
from torch import nn

torch.manual_seed(0)
enc = nn.Linear(4, 8)
h1, h2 = nn.Linear(8, 1), nn.Linear(8, 1)
opt = torch.optim.SGD([*enc.parameters(), *h1.parameters(), *h2.parameters()], lr=0.01)
for it in range(12):
    x = torch.randn(8, 4)
    z = enc(x)
    a = h1(z)
    if it == 7:
        a = a - a.detach()
    loss1 = torch.sqrt(a.square().sum())  # EXPECT root-gradient-at-zero
    loss2 = h2(z).square().mean()
    opt.zero_grad()
    loss1.backward(retain_graph=True)
    loss2.backward()
    opt.step()
