"""Fits a small regression on several processes; the first keeps the curve that is plotted at the end."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Fit:
    def __init__(self, net, lr):
        self.rank = dist.get_rank()
        self.net = DistributedDataParallel(net)
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
        self.curve = []

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.huber_loss(self.net(x), y)
        loss.backward()
        self.optimizer.step()

    def log(self, step, x, y):
        if self.rank == 0:
            error = nn.functional.huber_loss(self.net.module(x), y)
            self.curve.append((step, error))

    def plot(self):
        if self.rank == 0:
            for step, error in self.curve[9::10]:
                print(f"{step + 1} {error:.4f}")


def batches(data, steps):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    done = epoch = 0
    while done < steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            if done < steps:
                yield done, x, y
            done += 1
        epoch += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    x = torch.randn(1024, 12)
    y = (x[:, :4] * x[:, 4:8]).sum(dim=1, keepdim=True)
    data, held_out = TensorDataset(x[128:], y[128:]), (x[:128], y[:128])
    net = nn.Sequential(nn.Linear(12, 96), nn.GELU(), nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 1))
    fit = Fit(net, lr=3e-3)
    for step, x, y in batches(data, args.steps):
        fit.step(x, y)
        fit.log(step, *held_out)
    fit.plot()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
