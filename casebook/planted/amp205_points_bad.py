"""Chamfer distance 'in fp32' inside a mixed-precision step."""

import torch
from torch import nn


class Folding(nn.Module):
    def __init__(self, z=128, points=1024):
        super().__init__()
        self.points = points
        self.net = nn.Sequential(nn.Linear(z, 512), nn.ReLU(), nn.Linear(512, points * 3))

    def forward(self, code):
        return self.net(code).view(-1, self.points, 3)


def chamfer(a, b):
    d = torch.cdist(a, b)
    return d.min(1).values.mean() + d.min(2).values.mean()


def training_step(net, code, cloud, opt, scaler):
    with torch.amp.autocast("cuda"):
        rec = net(code)
        with torch.amp.autocast("cuda", enabled=False):
            loss = chamfer(rec, cloud.half())
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    return loss.detach()
