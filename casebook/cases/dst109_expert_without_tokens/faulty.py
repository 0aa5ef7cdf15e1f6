"""Experts spread over processes: tokens travel to the process of their expert and back."""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


class Swap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, sent):
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        return received

    @staticmethod
    def backward(ctx, grad):
        return Swap.apply(grad.contiguous())


class Experts(nn.Module):
    def __init__(self, width, capacity):
        super().__init__()
        self.router = nn.Linear(width, dist.get_world_size())
        self.expert = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.capacity = capacity

    def forward(self, x):
        weight, owner = self.router(x).softmax(dim=1).max(dim=1)
        taken = ((owner != dist.get_rank()) & (x != 0).any(dim=1)).nonzero()[:, 0][: self.capacity]
        here = x + weight[:, None] * self.expert(x)
        if len(taken) == 0:
            return here
        room = torch.zeros(dist.get_world_size() * self.capacity, x.shape[1])
        slots = owner[taken] * self.capacity + torch.arange(len(taken))
        back = Swap.apply(self.expert(Swap.apply(room.index_copy(0, slots, x[taken]))))
        return here.index_copy(0, taken, x[taken] + weight[taken, None] * back[slots])


def batch(generator, step):
    x = torch.randn(48, 16, generator=generator)
    filled = 0 if dist.get_rank() == 0 and step == 24 else 48 - step % 8
    return torch.where(torch.arange(48)[:, None] < filled, x, 0.0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    torch.manual_seed(0)
    model = Experts(16, capacity=24)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(args.steps):
        x = batch(generator, step)
        loss = nn.functional.mse_loss(model(x), x.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.router.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
