"""A wide model on small batches; gradients are cleared before each step."""

import argparse

import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self, inputs, width, classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
        )

    def forward(self, x):
        return self.layers(x)


class Fitter:
    def __init__(self, model, rate):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    fitter = Fitter(Wide(64, 256, 4), rate=0.1)
    rule = torch.randn(64, 4)
    for step in range(args.steps):
        x = torch.randn(256, 64)
        loss = fitter.step(x, (x @ rule).argmax(dim=1))
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss:.4f}")


if __name__ == "__main__":
    main()
