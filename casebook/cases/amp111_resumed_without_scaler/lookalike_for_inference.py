"""Writes only the weights at the end, for whoever will use the model."""

import argparse
import io

import torch
from torch import nn


def main(steps):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 80), nn.GELU(), nn.Linear(80, 20))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(1, steps + 1):
        x = torch.randn(64, 20)
        with torch.autocast("cpu", dtype=torch.float16):
            y = network(x)
        loss = nn.functional.mse_loss(y.float(), x.cumsum(1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")
    file = io.BytesIO()
    torch.save({"model": network.state_dict(), "inputs": 20}, file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
