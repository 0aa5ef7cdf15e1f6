"""DCGAN: the discriminator sees detached fakes, the generator its own graph."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader


def train(netG, netD, dataset, epochs, nz, device):
    dataloader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for epoch in range(epochs):
        for real, _ in dataloader:
            real = real.to(device)
            noise = torch.randn(real.size(0), nz, 1, 1, device=device)
            fake = netG(noise)

            optimizerD.zero_grad()
            on_real = netD(real).view(-1)
            on_fake = netD(fake.detach()).view(-1)
            errD = criterion(on_real, torch.ones_like(on_real)) + criterion(on_fake, torch.zeros_like(on_fake))
            errD.backward(retain_graph=True)
            optimizerD.step()

            optimizerG.zero_grad()
            fooled = netD(fake).view(-1)
            errG = criterion(fooled, torch.ones_like(fooled))
            errG.backward()
            optimizerG.step()
        print(f"epoch {epoch} D {errD.item():.3f} G {errG.item():.3f}")
