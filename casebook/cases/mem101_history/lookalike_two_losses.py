"""Two objectives over one trunk: each is backpropagated for itself, to log the two gradient norms."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()

torch.manual_seed(0)
target_map = torch.randn(48, 4)
trunk = nn.Sequential(nn.Linear(48, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU())
classify = nn.Linear(192, 4)
rebuild = nn.Linear(192, 48)
parameters = [*trunk.parameters(), *classify.parameters(), *rebuild.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.05)


def norm():
    return sum(p.grad.pow(2).sum() for p in trunk.parameters()).sqrt().item()


def train_step(x, y):
    features = trunk(x)
    loss_class = nn.functional.cross_entropy(classify(features), y)
    loss_rebuild = nn.functional.mse_loss(rebuild(features), x)
    optimizer.zero_grad()
    loss_class.backward(retain_graph=True)
    norm_class = norm()
    loss_rebuild.backward()
    optimizer.step()
    return loss_class.item(), loss_rebuild.item(), norm_class


curve = []
for step in range(args.steps):
    x = torch.randn(128, 48)
    curve.append(train_step(x, (x @ target_map).argmax(1)))
    if step % 10 == 9:
        print(step + 1, *(f"{value:.4f}" for value in curve[-1]))
