"""Body and head have an optimizer each; together they own everything."""

import argparse

import torch
from torch import nn


class Split:
    def __init__(self, body, head):
        self.body, self.head = body, head
        self.optimizers = {
            "body": torch.optim.SGD(body.parameters(), lr=0.02, momentum=0.9),
            "head": torch.optim.AdamW(head.parameters(), lr=5e-3),
        }

    def __call__(self, x):
        return self.head(self.body(x))

    def step(self, loss):
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers.values():
            optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Split(nn.Sequential(nn.Linear(24, 128), nn.ReLU()), nn.Linear(128, 3))
    for step in range(args.steps):
        x = torch.randn(128, 24)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        model.step(loss)
        if step % 10 == 9:
            print(f"{step + 1} {loss.item():.4f}")
