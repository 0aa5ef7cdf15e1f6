"""A diffusion-style denoiser with gradient clipping and mixed precision."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU())
        self.inward = nn.Linear(16, width)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.outward = nn.Linear(width, 16)

    def forward(self, noisy, t):
        return self.outward(self.body(self.inward(noisy) + self.time(t)))


class Schedule:
    def __init__(self, steps=50):
        self.kept = torch.cumprod(1 - torch.linspace(1e-3, 0.2, steps), 0)

    def add_noise(self, x, noise, t):
        kept = self.kept[t][:, None]
        return kept.sqrt() * x + (1 - kept).sqrt() * noise


class DiffusionTrainer:
    def __init__(self, model, fp16=True, max_grad_norm=1.0, lr=0.5):
        self.model = model
        self.schedule = Schedule()
        self.fp16 = fp16
        self.max_grad_norm = max_grad_norm
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", enabled=fp16, init_scale=2.0**14)

    def sub_step(self, latents):
        noise = torch.randn_like(latents)
        t = torch.randint(0, 50, (len(latents),))
        noisy = self.schedule.add_noise(latents, noise, t)
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.fp16):
            predicted = self.model(noisy, t[:, None] / 50)
        return nn.functional.mse_loss(predicted.float(), noise)

    def step(self, latents):
        loss = self.sub_step(latents)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss.item()

    def train(self, loader):
        recent = []
        for number, (latents,) in enumerate(loader, start=1):
            recent = [*recent[-19:], self.step(latents)]
            if number % 20 == 0:
                print(f"step {number}: loss {sum(recent) / len(recent):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    directions = torch.randn(2, 16)
    latents = torch.randn(args.steps * 64, 2) @ directions
    DiffusionTrainer(Denoiser()).train(DataLoader(TensorDataset(latents), batch_size=64, shuffle=True))
