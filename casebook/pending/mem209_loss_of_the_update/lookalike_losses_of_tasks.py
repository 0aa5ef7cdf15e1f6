"""One pass serves many tasks: their losses are added up before the backward pass, for they share the body's graph."""

import argparse

import torch
from torch import nn


class Tasks(nn.Module):
    def __init__(self, width, tasks):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(tasks))

    def forward(self, x):
        shared = self.body(x)
        return [head(shared) for head in self.heads]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tasks", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Tasks(64, args.tasks)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        x = torch.rand(2048, 2)
        total = 0.0
        for task, said in enumerate(model(x), start=1):
            total = total + nn.functional.mse_loss(said, torch.sin(task * x).prod(1, keepdim=True)) / args.tasks
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        if step % 6 == 0:
            print(f"update {step} loss {total.item():.4f}")


if __name__ == "__main__":
    main()
