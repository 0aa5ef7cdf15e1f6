"""Denoising diffusion on 2-d points."""

import math

import torch
import torch.nn as nn


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        freqs = torch.exp(-math.log(10000.0) * torch.arange(self.dim // 2, device=t.device) / (self.dim // 2))
        args = t[:, None].float() * freqs[None]
        return torch.cat([args.sin(), args.cos()], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.time = TimeEmbedding(dim)
        self.net = nn.Sequential(nn.Linear(2 + dim, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], dim=-1))


class Diffusion:
    def __init__(self, T=1000):
        betas = torch.linspace(1e-4, 0.02, T)
        self.T = T
        self.abar = torch.cumprod(1 - betas, 0)

    def q_sample(self, x0, t, eps):
        a = self.abar[t][:, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * eps


def train(model, diff, points, n_steps):
    history = {}
    opt = torch.optim.Adam(model.parameters(), lr=2e-4)
    for step in range(n_steps):
        x0 = points[torch.randint(len(points), (256,))]
        t = torch.randint(0, diff.T, (256,))
        eps = torch.randn_like(x0)
        opt.zero_grad()
        loss = (model(diff.q_sample(x0, t, eps), t) - eps).pow(2).mean()
        loss.backward()
        opt.step()
        history[step] = loss
    return history


if __name__ == "__main__":
    hist = train(Denoiser(), Diffusion(), torch.randn(4096, 2), 500)
    print(min(float(v) for v in hist.values()))
