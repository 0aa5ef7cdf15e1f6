"""GAN under autocast in half precision."""

import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast

latent, device = 128, "cuda"
generator = nn.Sequential(nn.Linear(latent, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 3072), nn.Tanh()).to(device)
discriminator = nn.Sequential(nn.Linear(3072, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 1)).to(device)
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
scaler = GradScaler("cuda")


def discriminator_step(real, noise):
    with autocast("cuda", dtype=torch.float16):
        fake = generator(noise).detach()
        on_real, on_fake = discriminator(real), discriminator(fake)
        loss_d = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
    opt_d.zero_grad()
    scaler.scale(loss_d).backward()
    scaler.step(opt_d)
    return loss_d.detach()


def generator_step(noise):
    with autocast("cuda", dtype=torch.float16):
        score = discriminator(generator(noise))
        loss_g = bce(score, torch.ones_like(score))
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()
    scaler.step(opt_g)
    return loss_g.detach()


def train(loader, epochs, n_critic=1):
    for epoch in range(epochs):
        for i, (real, _) in enumerate(loader):
            real = real.flatten(1).to(device, non_blocking=True)
            noise = torch.randn(real.size(0), latent, device=device)
            loss_d = discriminator_step(real, noise)
            if i % n_critic == 0:
                loss_g = generator_step(noise)
            scaler.update()
        print(f"[{epoch}] D {loss_d.item():.3f} G {loss_g.item():.3f}")
