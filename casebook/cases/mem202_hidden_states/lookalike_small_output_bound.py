"""The last output and loss stay bound to their names, as everywhere; they are small."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
rule = torch.randn(96, 5)

for step in range(1, args.steps + 1):
    inputs = torch.randn(128, 96)
    targets = (inputs @ rule).argmax(dim=1)
    outputs = model(inputs)
    loss = nn.functional.cross_entropy(outputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        accuracy = (outputs.argmax(dim=1) == targets).float().mean().item()
        print(f"{step:4d} loss {loss.item():.4f} accuracy {accuracy:.3f}")
