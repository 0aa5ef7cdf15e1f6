"""Tiny engine: one function does the step of every task."""

from contextlib import nullcontext
from typing import Callable

import torch
from torch import Tensor, nn


def amp_context(enabled: bool, device: str):
    return torch.autocast(device_type=device, dtype=torch.bfloat16) if enabled else nullcontext()


class Step:
    def __init__(
        self, net: nn.Module, opt: torch.optim.Optimizer, loss_fn: Callable[[Tensor, Tensor], Tensor], mixed: bool
    ):
        self.net, self.opt, self.loss_fn = net, opt, loss_fn
        self.mixed = mixed
        self.device = "cuda"

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        self.opt.zero_grad(set_to_none=True)
        with torch.autocast(device_type=self.device, dtype=torch.bfloat16) if self.mixed else nullcontext():
            out = self.net(x)
            loss = self.loss_fn(out, y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        return loss.detach()


@torch.no_grad()
def score(net: nn.Module, loader, device: str) -> float:
    net.eval()
    hits = n = 0
    for x, y in loader:
        with amp_context(True, device):
            pred = net(x.to(device)).argmax(-1)
        hits += (pred.cpu() == y).sum().item()
        n += y.numel()
    return hits / n


def main(train_loader, val_loader):
    net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
    step = Step(net, torch.optim.AdamW(net.parameters(), 1e-3), nn.CrossEntropyLoss(), mixed=True)
    for epoch in range(5):
        net.train()
        for x, y in train_loader:
            step(x.cuda(), y.cuda())
        print(epoch, score(net, val_loader, "cuda"))
