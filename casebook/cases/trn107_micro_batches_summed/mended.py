"""Learns a signal's next sample; a batch is too large for one pass and is cut into pieces."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--micro-batch", type=int, default=16)
    return parser.parse_args()


def windows(count, length=33):
    phase, speed = torch.rand(count, 1) * 6.28, 0.1 + torch.rand(count, 1)
    return torch.sin(phase + speed * torch.arange(length))


def learn_one_batch(model, optimizer, batch, micro_batch):
    optimizer.zero_grad()
    total = 0.0
    for piece in batch.split(micro_batch):
        predicted = model(piece[:, :-1])
        loss = F.mse_loss(predicted, piece[:, -1:])
        (loss * len(piece) / len(batch)).backward()
        total += loss.item()
    optimizer.step()
    return total / len(batch.split(micro_batch))


def main():
    args = parse()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(1, args.steps + 1):
        loss = learn_one_batch(model, optimizer, windows(args.batch), args.micro_batch)
        if step % 10 == 0:
            print(f"{step} {loss:.4f}")


if __name__ == "__main__":
    main()
