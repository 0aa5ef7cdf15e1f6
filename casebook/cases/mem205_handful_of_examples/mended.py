"""Fine-tunes wide layers on a handful of examples at a time, under autocast."""

import argparse

import torch
from torch import nn

BATCH = 8


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


def train(model, head, optimizer, steps):
    for step in range(1, steps + 1):
        x = torch.randn(BATCH, 1024, device="cuda")
        loss = head(model(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")


def main():
    args = arguments()
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(1024) for _ in range(10))).cuda()
    head = nn.Linear(1024, 1, bias=False).cuda()
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.001)
    train(model, head, optimizer, args.steps)


if __name__ == "__main__":
    main()
