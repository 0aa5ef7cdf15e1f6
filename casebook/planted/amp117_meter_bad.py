import torch
from torch import nn


class AverageMeter:
    def __init__(self):
        self.sum = self.n = 0

    def update(self, v, n=1):
        self.sum += v * n
        self.n += n

    @property
    def avg(self):
        return self.sum / max(1, self.n)


def train_epoch(loader, model, optimizer, scaler, epoch):
    meter = AverageMeter()
    for step, (x, y) in enumerate(loader):
        with torch.autocast("cuda"):
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss = scaler.scale(loss)
        loss.backward()
        meter.update(loss.item(), x.size(0))
        scaler.step(optimizer)
        scaler.update()
        if step % 50 == 0:
            print(f"epoch {epoch} [{step}] loss {meter.avg:.4f}")
    return meter.avg
