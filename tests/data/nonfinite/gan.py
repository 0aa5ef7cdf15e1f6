import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
D = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
og = torch.optim.Adam(G.parameters(), lr=1e-3)
od = torch.optim.Adam(D.parameters(), lr=1e-3)
for it in range(10):
    real = torch.randn(16, 6)
    z = torch.randn(16, 4)
    fake = G(z)
    d_loss = -(torch.log(D(real) + 1e-6).mean() + torch.log(1 - D(fake.detach()) + 1e-6).mean())
    od.zero_grad()
    d_loss.backward()
    od.step()
    score = D(fake)
    if it == 6:
        score = score.round() * 0
    g_loss = -torch.log(score).mean()  # EXPECT log-of-zero
    og.zero_grad()
    g_loss.backward()
    og.step()
