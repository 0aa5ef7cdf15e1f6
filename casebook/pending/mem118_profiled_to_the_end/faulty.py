"""Restores blurred signals; an option for finding slow layers is on."""

import argparse

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        return x + self.layers(x)


class Timing:
    def __init__(self):
        self.profile = profile(activities=[ProfilerActivity.CPU], record_shapes=True)

    def begin(self):
        self.profile.start()

    def after_step(self):
        self.profile.step()

    def end(self):
        self.profile.stop()


class Training:
    def __init__(self, width, depth):
        self.model = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, foreach=False)
        self.timing = Timing()

    def step(self, clean):
        blurred = (clean + clean.roll(1, 1) + clean.roll(-1, 1)) / 3
        loss = nn.functional.mse_loss(self.model(blurred), clean)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.timing.after_step()
        return loss.item()

    def fit(self, steps):
        self.timing.begin()
        for step in range(1, steps + 1):
            loss = self.step(torch.randn(32, 48))
            if step % 20 == 0:
                print(f"step {step} loss {loss:.4f}")
        self.timing.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    Training(width=48, depth=6).fit(args.steps)
