"""Four classes, trained by epochs in bfloat16."""

import argparse

import torch
from torch import nn


class Run:
    def __init__(self, steps):
        self.steps = steps
        self.model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def batches(self, count):
        for _ in range(count):
            x = torch.randn(32, 20)
            yield x, x[:, :4].argmax(1)

    def epoch(self):
        total = 0.0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for x, y in self.batches(self.steps // 3):
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item()
        return total / self.steps * 3

    @torch.no_grad()
    def evaluate(self):
        right = 0
        for x, y in self.batches(10):
            right += (self.model(x).argmax(1) == y).sum().item()
        return right / 320

    def run(self):
        for number in range(3):
            loss = self.epoch()
            print(f"epoch {number} loss {loss:.3f} accuracy {self.evaluate():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    Run(args.steps).run()
