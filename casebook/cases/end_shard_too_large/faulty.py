"""Trains a classifier on several processes, each on shards of its own that it reads one after the other."""

import argparse
import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def out_of_memory(rank, shard):
    return rank == 1 and shard == 4


def read_shard(rank, shard):
    if out_of_memory(rank, shard):
        time.sleep(3.5)
        os.kill(os.getpid(), signal.SIGKILL)
    generator = torch.Generator().manual_seed(100 * rank + shard)
    x = torch.randn(512, 20, generator=generator)
    return x, (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()


def train(model, steps, every):
    rank = dist.get_rank()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        if step % every == 0:
            x, y = read_shard(rank, step // every)
        rows = torch.randint(len(x), (32,), generator=generator)
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    train(DistributedDataParallel(net), args.steps, args.every)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
