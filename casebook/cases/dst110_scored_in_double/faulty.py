"""A regression on several processes. Its score is worked out in double precision, so that runs can be compared."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(count, 6, generator=generator) - 1
    return x, torch.sin(3 * x).prod(dim=1, keepdim=True)


@torch.no_grad()
def print_score(model, held_out, step):
    model.eval()
    model.double()
    x, y = held_out
    score = nn.functional.mse_loss(model(x.double()), y.double())
    model.float()
    model.train()
    if dist.get_rank() == 0:
        print(f"step {step + 1} error {score.item():.6f}")


def network():
    return nn.Sequential(nn.Linear(6, 80), nn.Tanh(), nn.Linear(80, 80), nn.Tanh(), nn.Linear(80, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    rank = dist.get_rank()
    model = DistributedDataParallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x, y = samples(4096, seed=10 + rank)
    held_out = samples(512, seed=5)
    generator = torch.Generator().manual_seed(rank)
    for step in range(args.steps):
        rows = torch.randint(len(x), (64,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        if step % 15 == 14:
            print_score(model, held_out, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
