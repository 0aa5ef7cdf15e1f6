import torch
from torch import nn

torch.manual_seed(0)
G, D = nn.Linear(3, 5), nn.Linear(5, 1)
og = torch.optim.Adam(G.parameters(), lr=1e-3)
od = torch.optim.Adam(D.parameters(), lr=1e-3)


def d_step(real, fake, bad):
    od.zero_grad()
    out = D(real)
    if bad:
        out = out - out.detach()
    lr = out.abs().pow(0.5).mean()  # EXPECT power-gradient-at-zero
    lr.backward()
    lf = D(fake.detach()).square().mean()
    lf.backward()
    od.step()


def g_step(fake):
    og.zero_grad()
    (1 - D(fake)).square().mean().backward()
    og.step()


for it in range(12):
    real, fake = torch.randn(6, 5), G(torch.randn(6, 3))
    d_step(real, fake, it == 8)
    g_step(fake)
