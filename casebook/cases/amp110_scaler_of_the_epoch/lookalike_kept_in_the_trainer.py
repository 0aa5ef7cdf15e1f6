"""The scaler is the trainer's, and epochs use it one after the other."""

import argparse

import torch
from torch import nn


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def epoch(self, batches):
        for _ in range(batches):
            x = torch.randn(64, 24)
            self.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                y = self.model(x)
            loss = nn.functional.mse_loss(y.float(), x.roll(1, 1))
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.item()


def main(steps):
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 24)))
    for epoch in range(steps // 10):
        print(f"epoch {epoch} {trainer.epoch(10):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
