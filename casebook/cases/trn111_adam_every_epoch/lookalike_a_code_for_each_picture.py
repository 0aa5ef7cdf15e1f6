"""Finds the code that a fixed decoder turns into a picture: each picture has a code and an optimizer of its own."""

import argparse

import torch
from torch import nn


class Inversion:
    def __init__(self, decoder):
        self.decoder = decoder.requires_grad_(False)

    def __call__(self, picture, steps):
        code = torch.zeros(1, 8, requires_grad=True)
        optimizer = torch.optim.Adam([code], lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.decoder(code), picture)
            loss.backward()
            optimizer.step()
        return code.detach(), loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    decoder = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 64))
    invert = Inversion(decoder)
    for number in range(4):
        _, loss = invert(decoder(torch.randn(1, 8)).detach(), args.steps // 4)
        print(f"picture {number} {loss:.5f}")
