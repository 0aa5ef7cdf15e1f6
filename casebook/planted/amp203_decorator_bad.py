"""Autocast as a decorator of the whole epoch."""

import torch
from torch import nn


class Experiment:
    def __init__(self, net: nn.Module) -> None:
        self.net = net.cuda()
        self.opt = torch.optim.AdamW(net.parameters(), lr=1e-3)

    @torch.autocast("cuda", dtype=torch.bfloat16)
    def train_epoch(self, loader) -> float:
        self.net.train()
        for x, y in loader:
            self.opt.zero_grad()
            loss = nn.functional.cross_entropy(self.net(x.cuda()), y.cuda())
            loss.backward()
            self.opt.step()
        return loss.item()


def main(loader) -> None:
    e = Experiment(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)))
    for n in range(5):
        print(n, e.train_epoch(loader))
