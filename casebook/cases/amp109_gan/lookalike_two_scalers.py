"""A generator and a critic with a scaler each."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

bce = nn.functional.binary_cross_entropy_with_logits


def mlp(*sizes):
    layers = []
    for inward, outward in zip(sizes, sizes[1:]):
        layers += [nn.Linear(inward, outward), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def ring(count):
    angle = torch.rand(count, 1) * 6.283
    return torch.cat([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


def train(generator, critic, loader):
    g_opt = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.99))
    d_opt = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.99))
    d_scaler = torch.amp.GradScaler("cpu", growth_interval=4)
    g_scaler = torch.amp.GradScaler("cpu", growth_interval=4)
    for step, (real,) in enumerate(loader, start=1):
        noise = torch.randn(len(real), 8)
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        with torch.autocast("cpu", dtype=torch.float16):
            fake = generator(noise)
            d_loss = bce(critic(real), ones) + bce(critic(fake.detach()), zeros)
        d_opt.zero_grad()
        d_scaler.scale(d_loss).backward()
        d_scaler.step(d_opt)
        d_scaler.update()
        with torch.autocast("cpu", dtype=torch.float16):
            g_loss = bce(critic(fake), ones)
        g_opt.zero_grad()
        g_scaler.scale(g_loss).backward()
        g_scaler.step(g_opt)
        g_scaler.update()
        if step % 20 == 0:
            print(f"step {step} critic {d_loss.item():.3f} generator {g_loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(ring(args.steps * 64)), batch_size=64, shuffle=True)
    train(mlp(8, 32, 32, 2), mlp(2, 32, 32, 1), loader)
