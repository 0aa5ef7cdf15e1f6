"""Hessian diagonal by Hutchinson's method: gradients with a graph, dropped before the step."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(24, 96), nn.Tanh(), nn.Linear(96, 1))
weights = list(model.parameters())
moments = [torch.zeros_like(w) for w in weights]


def curvature(gradients):
    signs = [torch.randint_like(g, 2) * 2 - 1 for g in gradients]
    products = torch.autograd.grad(gradients, weights, grad_outputs=signs)
    return [(p * s).abs() for p, s in zip(products, signs)]


for step in range(args.steps):
    x = torch.randn(96, 24)
    loss = nn.functional.mse_loss(model(x), x.prod(dim=1, keepdim=True).tanh() + x[:, :1])
    loss.backward(create_graph=True)
    diagonal = curvature([w.grad for w in weights])
    with torch.no_grad():
        for w, m, d in zip(weights, moments, diagonal):
            m.lerp_(d, 0.1)
            w.sub_(0.02 * w.grad / (m.sqrt() + 0.1))
    for w in weights:
        w.grad = None
    if step % 10 == 9:
        print(step + 1, f"{loss.item():.4f}")
