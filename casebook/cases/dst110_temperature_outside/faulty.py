"""Learns embeddings of pairs; the loss has a temperature and class centers of its own, learned along."""

import argparse
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class PairLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.shift = nn.Parameter(torch.zeros(32))

    def forward(self, left, right):
        left = nn.functional.normalize(left + self.shift, dim=1)
        right = nn.functional.normalize(right + self.shift, dim=1)
        logits = self.log_scale.exp() * left @ right.T
        return nn.functional.cross_entropy(logits, torch.arange(len(left)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, x):
        return self.layers(x)


def pairs(generator, size):
    left = torch.randn(size, 40, generator=generator)
    return left, left + 0.4 * torch.randn(size, 40, generator=generator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Encoder())
    criterion = PairLoss()
    optimizer = torch.optim.AdamW([*model.parameters(), *criterion.parameters()], lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        left, right = pairs(generator, 48)
        loss = criterion(model(left), model(right))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
