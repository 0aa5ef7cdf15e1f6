"""Two networks, two optimizers; each clears its own before its own backward pass."""

import argparse

import torch
from torch import nn


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))


def discriminator_step(generator, discriminator, optimizer, real):
    optimizer.zero_grad()
    with torch.no_grad():
        fake = generator(torch.randn(len(real), 3))
    loss = nn.functional.softplus(-discriminator(real)).mean() + nn.functional.softplus(discriminator(fake)).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def generator_step(generator, discriminator, optimizer, count):
    optimizer.zero_grad()
    loss = nn.functional.softplus(-discriminator(generator(torch.randn(count, 3)))).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator, discriminator = network(3, 2), network(2, 1)
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    for_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
    for step in range(1, args.steps + 1):
        real = torch.randn(128, 2) * torch.tensor([1.0, 0.1]) + 1
        first = discriminator_step(generator, discriminator, for_discriminator, real)
        second = generator_step(generator, discriminator, for_generator, 128)
        if step % 10 == 0:
            print(step, f"{first:.4f} {second:.4f}")


if __name__ == "__main__":
    main()
