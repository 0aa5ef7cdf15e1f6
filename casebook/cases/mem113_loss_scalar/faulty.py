"""Denoising autoencoder on synthetic waves; the curve is drawn from the kept losses."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Waves(IterableDataset):
    def __init__(self, batches, size, length, seed=0):
        self.batches = batches
        self.size = size
        self.length = length
        self.seed = seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        time = torch.linspace(0, 6.283, self.length)
        for _ in range(self.batches):
            pitch = torch.rand(self.size, 1, generator=generator) * 4 + 1
            clean = torch.sin(pitch * time)
            yield clean + 0.2 * torch.randn(clean.shape, generator=generator), clean


def fit(model, loader, rate):
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    curve = []
    for noisy, clean in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(noisy), clean)
        loss.backward()
        optimizer.step()
        curve.append(loss.detach())
        if len(curve) % 10 == 0:
            print(f"batch {len(curve)} loss {torch.stack(curve[-10:]).mean().item():.5f}")
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(400, 64), nn.Tanh(), nn.Linear(64, 400))
    fit(model, DataLoader(Waves(args.steps, 128, 400), batch_size=None), rate=2e-3)
