"""Trains in two sittings, as a job that is taken off the machine and put back."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn


class Session:
    def __init__(self):
        self.network = nn.Sequential(nn.Linear(20, 80), nn.GELU(), nn.Linear(80, 20))
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**18)
        self.done = 0

    def state(self):
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "done": self.done,
        }

    def save(self, file):
        torch.save(self.state(), file)

    def resume(self, file):
        state = torch.load(file, map_location="cpu")
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["done"]

    def work(self, until):
        while self.done < until:
            x = torch.randn(64, 20)
            with torch.autocast("cpu", dtype=torch.float16):
                y = self.network(x)
            loss = nn.functional.mse_loss(y.float(), x.cumsum(1))
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.done += 1
        print(f"after {self.done} steps {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "session.pt")
        first = Session()
        first.work(args.steps // 2)
        first.save(file)
        second = Session()
        second.resume(file)
        second.work(args.steps)


if __name__ == "__main__":
    main()
