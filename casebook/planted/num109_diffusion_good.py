"""Timesteps of a diffusion model, as integers."""

import math

import torch
from torch import nn

STEPS = 4000


def embedding(t, dim):
    rate = torch.exp(-math.log(10000) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    angle = t[:, None].float() * rate
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def train(denoiser, loader, device):
    times = torch.arange(0, STEPS, device=device)
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=1e-4)
    for clean in loader:
        clean = clean.to(device)
        t = times[torch.randint(0, STEPS, (len(clean),), device=device)]
        noise = torch.randn_like(clean)
        keep = torch.cos(t.float() / STEPS * math.pi / 2).view(-1, 1, 1, 1)
        noisy = keep * clean + (1 - keep**2).sqrt() * noise
        loss = nn.functional.mse_loss(denoiser(noisy, embedding(t, 128)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
