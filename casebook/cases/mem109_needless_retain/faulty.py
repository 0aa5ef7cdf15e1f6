"""Regression with a weight penalty, in one script."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--penalty", type=float, default=1e-4)
args = parser.parse_args()

torch.manual_seed(0)
net = nn.Sequential(
    nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
rule = torch.randn(32, 1) / 6

for step in range(args.steps):
    x = torch.randn(512, 32)
    y = torch.tanh(x @ rule)
    prediction = net(x)
    loss = nn.functional.mse_loss(prediction, y)
    loss = loss + args.penalty * sum(weight.pow(2).sum() for weight in net.parameters())
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    if (step + 1) % 10 == 0:
        print(f"step {step + 1} loss {loss.item():.5f}")
