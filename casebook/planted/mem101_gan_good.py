"""DCGAN on 32x32 images; the discriminator's score on fixed noise is kept to draw a curve at the end."""

import torch
import torch.nn as nn
import torch.optim as optim

latent = 100
netG = nn.Sequential(nn.ConvTranspose2d(latent, 128, 4), nn.ReLU(True), nn.ConvTranspose2d(128, 3, 8, 8), nn.Tanh())
netD = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 16), nn.Flatten())
criterion = nn.BCEWithLogitsLoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed_noise = torch.randn(64, latent, 1, 1)
G_losses, D_losses, scores = [], [], []


def train(dataloader, epochs):
    for epoch in range(epochs):
        for real, _ in dataloader:
            netD.zero_grad()
            noise = torch.randn(real.size(0), latent, 1, 1)
            fake = netG(noise)
            out_real, out_fake = netD(real), netD(fake.detach())
            errD = criterion(out_real, torch.ones_like(out_real)) + criterion(out_fake, torch.zeros_like(out_fake))
            errD.backward()
            optimizerD.step()

            netG.zero_grad()
            out = netD(fake)
            errG = criterion(out, torch.ones_like(out))
            errG.backward()
            optimizerG.step()

            with torch.no_grad():
                scores.append(netD(netG(fixed_noise)).mean())
            D_losses.append(errD.item())
            G_losses.append(errG.item())
        print(f"[{epoch}] D {D_losses[-1]:.3f} G {G_losses[-1]:.3f} fixed {float(scores[-1]):.3f}")
