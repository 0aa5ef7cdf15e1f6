"""Fills the gradients by hand from autograd.grad, clipped, and then steps."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 100), nn.Tanh(), nn.Linear(100, 1))
weights = list(model.parameters())
optimizer = torch.optim.Adam(weights, lr=3e-3)
rule = torch.randn(20, 1) / 4

for step in range(args.steps):
    x = torch.randn(128, 20)
    loss = nn.functional.mse_loss(model(x), (x @ rule).sin())
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights)):
        weight.grad = gradient.clamp(-0.5, 0.5)
    optimizer.step()
    if step % 10 == 9:
        print(step + 1, f"{loss.item():.4f}")
