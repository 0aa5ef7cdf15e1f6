"""Embeds a stream of batches with a frozen network: nothing in it asks for gradients."""

import argparse

import torch
from torch import nn


class Extractor:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16))
        self.network.eval()
        for parameter in self.network.parameters():
            parameter.requires_grad = False

    def __call__(self, x):
        return nn.functional.normalize(self.network(x), dim=1)


def similarity(extractor, steps):
    centre = torch.zeros(16)
    for step in range(1, steps + 1):
        vectors = extractor(torch.randn(512, 128) + 0.1)
        centre = centre + (vectors.mean(dim=0) - centre) / step
        if step % 10 == 0:
            print(f"batch {step} spread {(vectors - centre).norm(dim=1).mean().item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    similarity(Extractor(0), parser.parse_args().steps)
