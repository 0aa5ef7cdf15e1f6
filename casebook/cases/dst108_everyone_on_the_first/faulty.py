"""To be started by torchrun on a machine with several cards; without it says so and does nothing."""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Job:
    def __init__(self, net, device):
        self.device = device
        self.net = DistributedDataParallel(net.to(device))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)

    def step(self, x):
        x = x.to(self.device)
        loss = nn.functional.mse_loss(self.net(x), x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def run(steps):
    dist.init_process_group("nccl")
    device = torch.device("cuda")
    job = Job(nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 64)), device)
    for step in range(steps):
        loss = job.step(torch.randn(256, 64))
        if step % 20 == 19 and dist.get_rank() == 0:
            print(f"{step + 1} {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    if "LOCAL_RANK" not in os.environ:
        sys.exit("start this with torchrun")
    run(args.steps)
