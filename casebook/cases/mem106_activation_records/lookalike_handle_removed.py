"""Hooks are put on for one forward pass of a probe batch and taken off again."""

import argparse
import contextlib

import torch
from torch import nn


@contextlib.contextmanager
def recorded(model):
    outputs = {}
    handles = [
        module.register_forward_hook(lambda _m, _i, out, name=name: outputs.setdefault(name, []).append(out))
        for name, module in model.named_children()
    ]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def train_step(model, optimizer, rule):
    x = torch.randn(128, 64)
    with recorded(model) as outputs:
        loss = nn.functional.cross_entropy(model(x), (x @ rule).argmax(dim=1))
        sparsity = sum(out.relu().mean() for out in outputs["0"])
    optimizer.zero_grad()
    (loss + 0.01 * sparsity).backward()
    optimizer.step()
    return loss.item(), sparsity.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rule = torch.randn(64, 8)
    for step in range(args.steps):
        loss, sparsity = train_step(model, optimizer, rule)
        if step % 10 == 9:
            print(step + 1, f"{loss:.4f} {sparsity:.4f}")
