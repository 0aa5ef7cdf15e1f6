"""Runs on old versions too: the new names where there are any."""

import argparse

import torch
from torch import nn

if hasattr(torch.amp, "GradScaler"):
    from torch.amp import GradScaler, autocast
else:
    from torch.cuda.amp import GradScaler, autocast


def main(steps):
    torch.manual_seed(0)
    half = torch.cuda.is_available()
    device = "cuda" if half else "cpu"
    net = nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = GradScaler(device, enabled=half)
    for step in range(1, steps + 1):
        x = torch.randn(64, 18, device=device)
        with autocast(device, enabled=half):
            loss = nn.functional.cross_entropy(net(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
