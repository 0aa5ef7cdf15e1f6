"""Meta-learning: the inner step keeps its graph, by autograd.grad and functional_call."""

import argparse

import torch
from torch import nn
from torch.func import functional_call


def inner_step(model, weights, x, y, rate):
    loss = nn.functional.mse_loss(functional_call(model, weights, (x,)), y)
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    return {name: w - rate * g for (name, w), g in zip(weights.items(), gradients)}


def sample_task():
    phase, height = torch.rand(2) * 3
    x = torch.rand(64, 1) * 6 - 3
    y = height * torch.sin(x + phase)
    return x[:32], y[:32], x[32:], y[32:]


def meta_step(model, optimizer, tasks):
    losses = []
    for _ in range(tasks):
        x, y, x_test, y_test = sample_task()
        adapted = inner_step(model, dict(model.named_parameters()), x, y, rate=0.05)
        losses.append(nn.functional.mse_loss(functional_call(model, adapted, (x_test,)), y_test))
    loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        loss = meta_step(model, optimizer, tasks=2)
        if step % 10 == 9:
            print(f"meta step {step + 1} loss {loss:.4f}")
