"""Each batch is an object with its own callbacks."""

import argparse

import torch
from torch import nn


class Batch:
    def __init__(self, x, y, model):
        self.x = x
        self.y = y
        self.model = model
        self.callbacks = []

    def on_done(self, action):
        self.callbacks.append(lambda: action(self))

    def run(self, optimizer):
        optimizer.zero_grad()
        self.loss = nn.functional.mse_loss(self.model(self.x), self.y)
        self.loss.backward()
        optimizer.step()
        for callback in self.callbacks:
            callback()


class Progress:
    def __init__(self):
        self.losses = []

    def __call__(self, batch):
        self.losses.append(batch.loss.item())
        if len(self.losses) % 10 == 0:
            print(f"batch {len(self.losses)} loss {self.losses[-1]:.4f} size {len(batch.x)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    progress = Progress()
    for _ in range(args.steps):
        x = torch.randn(512, 512)
        batch = Batch(x, x.mean(dim=1, keepdim=True), model)
        batch.on_done(progress)
        batch.run(optimizer)


if __name__ == "__main__":
    main()
