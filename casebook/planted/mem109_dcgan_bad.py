"""DCGAN, discriminator and generator updated in turn."""

import torch
from torch import nn

nz, ngf, ndf = 100, 64, 64


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(3, ndf, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(ndf, 1, 8))

    def forward(self, x):
        return self.main(x).view(-1)


class GANTrainer:
    def __init__(self, lr=2e-4, betas=(0.5, 0.999)):
        self.G, self.D = Generator(), Discriminator()
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=lr, betas=betas)
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=lr, betas=betas)
        self.bce = nn.BCEWithLogitsLoss()

    def step_d(self, real, fake):
        self.opt_d.zero_grad()
        out_real, out_fake = self.D(real), self.D(fake.detach())
        loss = self.bce(out_real, torch.ones_like(out_real)) + self.bce(out_fake, torch.zeros_like(out_fake))
        loss.backward(retain_graph=True)
        self.opt_d.step()
        return loss.item()

    def step_g(self, fake):
        self.opt_g.zero_grad()
        out = self.D(fake)
        loss = self.bce(out, torch.ones_like(out))
        loss.backward()
        self.opt_g.step()
        return loss.item()

    def train(self, batches):
        for i, real in enumerate(batches):
            fake = self.G(torch.randn(real.size(0), nz, 1, 1))
            d, g = self.step_d(real, fake), self.step_g(fake)
            if i % 10 == 0:
                print(f"[{i}] D {d:.3f} G {g:.3f}")


if __name__ == "__main__":
    GANTrainer().train(torch.randn(16, 3, 16, 16) for _ in range(30))
