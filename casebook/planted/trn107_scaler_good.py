"""Fine-tune a segmentation network with gradient accumulation and mixed precision."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    epochs: int = 20
    lr: float = 0.01
    accum_iter: int = 8
    clip: float = 1.0


class SegNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU())
        self.up = nn.ConvTranspose2d(64, classes, 2, 2)

    def forward(self, x):
        return self.up(self.down(x))


def train_one_epoch(net, data_loader, opt, scaler, cfg, epoch):
    net.train()
    opt.zero_grad()
    for it, (x, y) in enumerate(data_loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(net(x), y, ignore_index=255)
        loss = loss / cfg.accum_iter
        scaler.scale(loss).backward()
        if (it + 1) % cfg.accum_iter == 0:
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), cfg.clip)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        if it % 100 == 0:
            print(f"epoch {epoch} iteration {it} loss {loss.item() * cfg.accum_iter:.4f}")


@torch.inference_mode()
def validate(net, data_loader):
    net.eval()
    hits, pixels = 0, 0
    for x, y in data_loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        guess = net(x).argmax(1)
        hits += (guess == y).sum()
        pixels += y.numel()
    return (hits / pixels).item()


def run(train_loader, val_loader, classes, cfg=None):
    cfg = cfg or Config()
    net = SegNet(classes).cuda()
    opt = torch.optim.SGD(net.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(cfg.epochs):
        train_one_epoch(net, train_loader, opt, scaler, cfg, epoch)
        print(f"epoch {epoch} accuracy {validate(net, val_loader):.4f}")
        torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "scaler": scaler.state_dict()}, "last.pt")
    return net
