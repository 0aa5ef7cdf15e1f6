"""A checkpoint of whatever has a state, by name."""

import argparse
import io

import torch
from torch import nn


class Checkpoint:
    def __init__(self, **parts):
        self.parts = parts

    def save(self, file):
        torch.save({name: part.state_dict() for name, part in self.parts.items()}, file)

    def load(self, file):
        for name, state in torch.load(file, map_location="cpu").items():
            self.parts[name].load_state_dict(state)


def main(steps):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 80), nn.GELU(), nn.Linear(80, 20))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    checkpoint, file = Checkpoint(network=network, optimizer=optimizer, scaler=scaler), io.BytesIO()
    for step in range(1, steps + 1):
        x = torch.randn(64, 20)
        with torch.autocast("cpu", dtype=torch.float16):
            y = network(x)
        loss = nn.functional.mse_loss(y.float(), x.cumsum(1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step == steps // 2:
            checkpoint.save(file)
            file.seek(0)
            checkpoint.load(file)
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
