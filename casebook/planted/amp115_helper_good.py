"""Autocast by a stored partial; no scaler anywhere."""

import functools

import torch
from torch import nn

AMP = functools.partial(torch.autocast, device_type="cuda", dtype=torch.float16)


class Denoise(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, 1, 3, padding=1))

    def forward(self, x):
        return x - self.body(x)


def compute(net, noisy, clean):
    with AMP():
        out = net(noisy)
        loss = nn.functional.mse_loss(out.float(), clean)
    return loss


def main(loader):
    net = Denoise().cuda()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    for noisy, clean in loader:
        loss = compute(net, noisy.cuda(), clean.cuda())
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
