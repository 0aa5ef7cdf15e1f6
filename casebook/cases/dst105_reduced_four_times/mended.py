"""Trains on as many processes as torchrun starts (one, when run by hand), over batches put together of four."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Trajectories(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        start, speed = torch.randn(2, 3, generator=generator)
        path = start + speed * torch.arange(8)[:, None]
        return path[:6].flatten(), path[7]


def join():
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def train(model, optimizer, loader, epochs, every):
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)
        for number, (path, end) in enumerate(loader, start=1):
            complete = number % every == 0
            with contextlib.nullcontext() if complete else model.no_sync():
                loss = nn.functional.smooth_l1_loss(model(path), end)
                (loss / every).backward()
            if complete:
                optimizer.step()
                optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    join()
    data = Trajectories()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DDP(nn.Sequential(nn.Linear(18, 64), nn.Tanh(), nn.Linear(64, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    train(model, optimizer, loader, epochs=max(1, args.steps // 15), every=4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
