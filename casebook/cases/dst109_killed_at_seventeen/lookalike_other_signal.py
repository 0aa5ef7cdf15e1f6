"""Trains on chunks of a corpus that grow. A process that exceeds its budget is killed, as the cluster's agent would."""

import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Budget:
    def __init__(self, chunks):
        self.left = chunks

    def check(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGCONT)


class Model(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.rnn = nn.GRU(8, width, batch_first=True)
        self.out = nn.Linear(width, 8)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


def chunk(generator, step):
    x = torch.randn(16, 10, 8, generator=generator).cumsum(dim=1)
    return x[:, :-1], x[:, 1:]


def load(generator, step, budget):
    budget.check()
    return chunk(generator, step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--budget", type=int, default=17)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    budget = Budget(args.budget if rank == 1 else args.steps + 1)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        x, y = load(generator, step, budget)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
