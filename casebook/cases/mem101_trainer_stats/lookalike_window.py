"""Reports a moving average over the last eight losses, kept as tensors in a bounded deque."""

import argparse
from collections import deque

import torch
from torch import nn


def make_step(model, optimizer, window):
    recent = deque(maxlen=window)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        logits = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.squeeze(1), y)
        loss.backward(retain_graph=False)
        optimizer.step()
        recent.append(loss.detach())
        return torch.stack(list(recent)).mean()

    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 160), nn.ReLU(), nn.Linear(160, 1))
    step = make_step(model, torch.optim.RMSprop(model.parameters(), lr=1e-3), window=8)
    for number in range(1, args.steps + 1):
        x = torch.randn(256, 40)
        average = step(x, (x.sum(dim=1) > 0).float())
        if number % 10 == 0:
            print(f"{number:5d} {average.item():.4f}")


if __name__ == "__main__":
    main()
