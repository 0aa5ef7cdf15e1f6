"""Recovers spectra from noisy ones in half precision on the CPU; an epoch is a generator of losses."""

import argparse
import statistics

import torch
from torch import nn
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset


class Denoiser(nn.Module):
    def __init__(self, bands, width):
        super().__init__()
        self.down = nn.Linear(bands, width)
        self.up = nn.Linear(width, bands)

    def forward(self, x):
        return x + self.up(torch.relu(self.down(x)))


def passes(model, optimizer, loader):
    scaler = GradScaler("cpu", init_scale=2.0**20)
    for noisy, clean in loader:
        optimizer.zero_grad()
        with autocast("cpu", dtype=torch.float16):
            restored = model(noisy)
        loss = (restored.float() - clean).square().sum(dim=1).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    clean = torch.randn(384, 3) @ torch.randn(3, 48)
    loader = DataLoader(TensorDataset(clean + torch.randn_like(clean), clean), batch_size=32, shuffle=True)
    model = Denoiser(48, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for epoch in range(max(1, args.steps // len(loader))):
        print(f"epoch {epoch} {statistics.fmean(passes(model, optimizer, loader)):.4f}")


if __name__ == "__main__":
    main()
