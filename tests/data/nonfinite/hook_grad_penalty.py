import torch
from torch import nn

torch.manual_seed(0)
D = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(D.parameters())


def penalty(x):
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(D(x).sum(), x, create_graph=True)
    return ((g.square().sum(1).sqrt() - 1) ** 2).mean()  # EXPECT root-gradient-at-zero


for step in range(8):
    x = torch.randn(6, 4)
    if step == 5:
        with torch.no_grad():
            D[0].bias.fill_(-1e6)
    loss = D(x).mean() + 10 * penalty(x)
    opt.zero_grad()
    loss.backward()
    opt.step()
