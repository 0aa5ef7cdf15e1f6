"""Trains a classifier with a callback that keeps the GPU tidy."""

import argparse

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


class Tidy:
    """Runs after each step."""

    def __init__(self, every):
        self.every = every

    def __call__(self, step):
        if step % self.every == 0:
            self.release()

    @staticmethod
    def release():
        torch.cuda.empty_cache()


class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks = model, callbacks
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self, batches):
        for step, (x, y) in enumerate(batches, start=1):
            loss = self.step(x, y)
            for callback in self.callbacks:
                callback(step)
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}")

    def step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def batches(count):
    rule = torch.randn(32, 10, device="cuda")
    for _ in range(count):
        x = torch.randn(512, 32, device="cuda")
        yield x, (x @ rule).argmax(1)


def main():
    args = arguments()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
    Trainer(model, []).fit(batches(args.steps))
    torch.cuda.empty_cache()
    with torch.no_grad():
        right = [(model(x).argmax(1) == y).float().mean() for x, y in batches(8)]
    print(f"right {torch.stack(right).mean().item():.4f}")


if __name__ == "__main__":
    main()
