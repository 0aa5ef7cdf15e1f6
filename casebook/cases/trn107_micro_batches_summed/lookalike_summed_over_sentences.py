"""Sums the loss over tokens and divides the gradients by their number once the batch is complete."""

import argparse

import torch
from torch import nn


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(1, steps + 1):
        tokens, total = 0, 0.0
        for _ in range(4):
            sentence = torch.randint(0, 50, (8, int(torch.randint(5, 12, ()))))
            scores = model(sentence[:, :-1]).flatten(0, 1)
            loss = nn.functional.cross_entropy(scores, sentence[:, 1:].flatten(), reduction="sum")
            loss.backward()
            tokens += sentence[:, 1:].numel()
            total += loss.item()
        for p in model.parameters():
            p.grad /= tokens
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"{step} {total / tokens:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
