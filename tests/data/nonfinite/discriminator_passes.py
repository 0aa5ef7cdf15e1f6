import torch
from torch import nn

torch.manual_seed(0)
G, D = nn.Linear(3, 5), nn.Linear(5, 1)
og = torch.optim.Adam(G.parameters(), lr=1e-3)
od = torch.optim.Adam(D.parameters(), lr=1e-3)


def judge(real, fake, bad):
    od.zero_grad()
    out = D(real) - (D(real).detach() if bad else 0)
    out.abs().pow(0.5).mean().backward()  # EXPECT power-gradient-at-zero
    D(fake.detach()).square().mean().backward()
    od.step()


def make(fake):
    og.zero_grad()
    (1 - D(fake)).square().mean().backward()
    og.step()


for it in range(12):
    real, fake = torch.randn(6, 5), G(torch.randn(6, 3))
    judge(real, fake, it == 8)
    make(fake)
