import torch
from torch import nn


def train_wgan(G, D, loader, z_dim, n_critic=5):
    og, od = torch.optim.RMSprop(G.parameters(), 5e-5), torch.optim.RMSprop(D.parameters(), 5e-5)
    for i, (real, _) in enumerate(loader):
        z = torch.randn(len(real), z_dim)
        with torch.no_grad():
            fake = G(z)
        od.zero_grad()
        d_loss = D(fake).mean() - D(real).mean()
        d_loss.backward()
        od.step()
        for p in D.parameters():
            p.data.clamp_(-0.01, 0.01)
        if i % n_critic == 0:
            og.zero_grad()
            g_loss = -D(fake).mean()
            g_loss.backward()
            og.step()
            print(i, d_loss.item(), g_loss.item())
