import torch
from torch import nn


class Meter:
    def __init__(self):
        self.values = []

    def add(self, v):
        self.values.append(float(v))


def go(model, loader, optimizer, scaler, meter):
    for x, y in loader:
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        biggest = max(p.grad.abs().max() for p in model.parameters())
        scaler.unscale_(optimizer)
        meter.add(biggest)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def main(loader):
    model = nn.Linear(10, 1).cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    go(model, loader, opt, torch.amp.GradScaler("cuda"), Meter())
