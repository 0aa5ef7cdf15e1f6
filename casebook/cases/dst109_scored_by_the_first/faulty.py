"""Trains a classifier on several processes; the first one scores it on held out data now and then."""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def data(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 20, generator=generator)
    return x, (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()


@torch.no_grad()
def validate(model, held_out):
    model.eval()
    x, y = held_out
    right = (model.module(x).argmax(dim=1) == y).sum()
    total = torch.stack([right, torch.tensor(len(y))]).float()
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def train(model, steps, every):
    rank = dist.get_rank()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = data(2048, seed=rank)
    held_out = data(256, seed=1000 + rank)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        rows = torch.randint(len(x), (32,), generator=generator)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == every - 1 and rank == 0:
            score = validate(model, held_out)
            print(f"step {step + 1} accuracy {score:.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=25)
    args = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2))
    train(DistributedDataParallel(net), args.steps, args.every)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
