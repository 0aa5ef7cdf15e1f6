"""A custom activation with a learned slope."""

import argparse

import torch
from torch import nn


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        gate = torch.sigmoid(slope * x)
        ctx.save_for_backward(x, gate, slope)
        return x * gate

    @staticmethod
    def backward(ctx, grad_output):
        x, gate, slope = ctx.saved_tensors
        inner = gate * (1 - gate)
        grad_x = grad_output * (gate + slope * x * inner)
        grad_slope = (grad_output * x * x * inner).sum()
        return grad_x, grad_slope


class Activation(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return Swish.apply(x, self.slope)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), Activation(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for step in range(args.steps):
        x = torch.randn(128, 32)
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(x), x.square().mean(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss)
        if (step + 1) % 10 == 0:
            recent = torch.stack(losses[-10:]).mean()
            print(f"step {step + 1} loss {recent.item():.4f}")


if __name__ == "__main__":
    main()
