"""Multi-task segmentation: the boundary head is trained with its own, unclipped loss."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler


class SegNet(nn.Module):
    def __init__(self, classes: int = 19) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
        self.seg = nn.Conv2d(32, classes, 1)
        self.edge = nn.Conv2d(32, 1, 1)

    def forward(self, x):
        f = self.stem(x)
        return self.seg(f), self.edge(f)


def train_step(net, optimizer, scaler, image, mask, edge, edge_weight=0.4):
    optimizer.zero_grad()
    with autocast(device_type="cuda", dtype=torch.float16):
        seg_logits, edge_logits = net(image)
        seg_loss = F.cross_entropy(seg_logits, mask, ignore_index=255)
        edge_loss = F.binary_cross_entropy_with_logits(edge_logits, edge)
    scaler.scale(seg_loss).backward(retain_graph=True)
    scaler.scale(edge_weight * edge_loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return seg_loss.detach(), edge_loss.detach()


def main(loader, epochs=40):
    net = SegNet().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    poly = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=epochs, power=0.9)
    scaler = GradScaler("cuda")
    for epoch in range(epochs):
        net.train()
        for image, mask, edge in loader:
            seg, edge_l = train_step(net, optimizer, scaler, image.cuda(), mask.cuda(), edge.cuda())
        print(f"{epoch}: seg {seg.item():.3f} edge {edge_l.item():.3f}")
        poly.step()
