"""Recomputes its middle in backward, and frees what it kept as soon as it has used it."""

import argparse

import torch
from torch import nn


class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        with torch.no_grad():
            ctx.hint = (x @ weight.t()).amax(dim=1, keepdim=True)
            return torch.exp(x @ weight.t() - ctx.hint)

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        scores = torch.exp(x @ weight.t() - ctx.hint)
        ctx.hint = None
        grad_scores = grad_output * scores
        return grad_scores @ weight, grad_scores.t() @ x


class Kernel(nn.Module):
    def __init__(self, width, centres):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(centres, width) / width)
        self.head = nn.Linear(centres, 1)

    def forward(self, x):
        return self.head(Recompute.apply(x, self.weight))


def main(steps):
    torch.manual_seed(0)
    model = Kernel(16, 300)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        x = torch.randn(128, 16)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x[:, :1].abs())
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"{step + 1} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
