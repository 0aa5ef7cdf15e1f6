"""Cycles over a short list of augmentation names and a short list of seeds, not over batches."""

import argparse
import itertools

import torch
from torch import nn

AUGMENT = {"none": lambda x: x, "flip": lambda x: x.flip(1), "noise": lambda x: x + 0.1 * torch.randn_like(x)}


def batches(seeds):
    for seed in itertools.cycle(seeds):
        generator = torch.Generator().manual_seed(seed)
        yield torch.randn(128, 256, generator=generator)


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 32), nn.Tanh(), nn.Linear(32, 256))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    names = itertools.cycle(AUGMENT)
    for step, x in enumerate(itertools.islice(batches(range(12)), steps), start=1):
        augmented = AUGMENT[next(names)](x)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(augmented), augmented)
        loss.backward()
        optimizer.step()
        if step % 12 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
