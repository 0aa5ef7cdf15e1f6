"""Unscale after the step, to print the norm of the gradients."""

import torch
from torch import nn


def report(params):
    return torch.stack([p.grad.norm() for p in params if p.grad is not None]).norm()


class Loop:
    def __init__(self, model: nn.Module, every: int = 10):
        self.model, self.every = model.cuda(), every
        self.o = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        self.gs = torch.amp.GradScaler("cuda")

    def __call__(self, batches):
        for n, (x, y) in enumerate(batches):
            with torch.autocast("cuda"):
                loss = nn.functional.cross_entropy(self.model(x.cuda()), y.cuda())
            self.o.zero_grad()
            self.gs.scale(loss).backward()
            if n % self.every == 0:
                self.gs.unscale_(self.o)
                print(n, report(self.model.parameters()).item())
            self.gs.step(self.o)
            self.gs.update()
