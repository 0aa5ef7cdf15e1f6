import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Adam


def hinge_d(real, fake):
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


class ConditionalGAN(nn.Module):
    def __init__(self, G, D):
        super().__init__()
        self.G = G.cuda()
        self.D = D.cuda()
        self.g_opt = Adam(self.G.parameters(), 1e-4, betas=(0.0, 0.9))
        self.d_opt = Adam(self.D.parameters(), 4e-4, betas=(0.0, 0.9))

    def update(self, real, label):
        z = torch.randn(real.size(0), 128, device=real.device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            fake = self.G(z, label)
            d_loss = hinge_d(self.D(real, label), self.D(fake.detach(), label))
            self.d_opt.zero_grad()
            d_loss.backward()
            self.d_opt.step()
            g_loss = -self.D(fake, label).mean()
            self.g_opt.zero_grad()
            g_loss.backward()
            self.g_opt.step()
        return d_loss.detach(), g_loss.detach()


def train(gan: ConditionalGAN, loader, steps: int):
    it = iter(loader)
    for step in range(steps):
        try:
            real, label = next(it)
        except StopIteration:
            it = iter(loader)
            real, label = next(it)
        d, g = gan.update(real.cuda(), label.cuda())
        if step % 500 == 0:
            print(f"{step} d={d.item():.3f} g={g.item():.3f}")
