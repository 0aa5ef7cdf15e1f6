"""Estimates how sure a grader is: many passes with dropout on, and their spread."""

import argparse

import torch
from torch import nn


class Grader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))

    def forward(self, x):
        return self.layers(x)

    @torch.no_grad()
    def mc_dropout_uncertainty(self, x, passes=20):
        self.train()
        return torch.stack([self(x) for _ in range(passes)]).std(dim=0).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(1)
    model = Grader()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    unseen = torch.randn(64, 20) * 3
    for step in range(1, args.steps + 1):
        x = torch.randn(64, 20)
        loss = nn.functional.mse_loss(model(x), x.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} loss {loss.item():.4f} spread {model.mc_dropout_uncertainty(unseen).item():.4f}")


if __name__ == "__main__":
    main()
