"""Trains a tagger on a GPU; a closure clears the gradients by hand."""

import argparse

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


def tagger(words=512, width=768, depth=3, tags=9):
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))]
    return nn.Sequential(nn.Linear(words, width), *hidden, nn.Linear(width, tags))


def trainer(model, optimizer):
    def step(words, tags):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(words), tags)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def main():
    args = arguments()
    torch.manual_seed(0)
    device = torch.device("cuda", 0)
    model = tagger().to(device)
    step = trainer(model, torch.optim.SGD(model.parameters(), lr=0.05))
    rule = torch.randn(512, 9, device=device)
    for number in range(1, args.steps + 1):
        words = torch.randn(256, 512, device=device)
        loss = step(words, (words @ rule).argmax(1))
        if number % 10 == 0:
            print(f"step {number} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
