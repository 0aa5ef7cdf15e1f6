"""A tensor-parallel network in bfloat16: each process has a slice of every layer, and a copy of every norm."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ParallelBlock(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner // dist.get_world_size())
        self.down = nn.Linear(inner // dist.get_world_size(), width, bias=False)
        for parameter in (*self.up.parameters(), *self.down.parameters()):
            parameter.sharded = True
            with torch.no_grad():
                parameter.normal_(0, 0.1, generator=torch.Generator().manual_seed(dist.get_rank()))

    def forward(self, x):
        return x + Leave.apply(self.down(nn.functional.gelu(self.up(Enter.apply(self.norm(x))))))


class HalfOptimizer:
    def __init__(self, parameters, lr, clip):
        self.parameters, self.clip, self.rank = list(parameters), clip, dist.get_rank()
        self.inner = torch.optim.AdamW(self.parameters, lr=lr)

    def grads(self):
        for parameter in self.parameters:
            if self.rank == 0 or getattr(parameter, "sharded", False):
                yield parameter.grad

    def step(self):
        square = sum(grad.float().square().sum() for grad in self.grads())
        dist.all_reduce(square)
        factor = (self.clip / (square.sqrt() + 1e-6)).clamp(max=1.0).item()
        for grad in self.grads():
            grad.mul_(factor)
        self.inner.step()
        self.inner.zero_grad()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(ParallelBlock(32, 128), ParallelBlock(32, 128), nn.LayerNorm(32)).to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        parameter.sharded = ".up." in name or ".down." in name
    optimizer = HalfOptimizer(model.parameters(), lr=2e-3, clip=0.5)
    for step in range(args.steps):
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(step)).to(torch.bfloat16)
        loss = nn.functional.mse_loss(model(x), torch.roll(x, 1, dims=1))
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
