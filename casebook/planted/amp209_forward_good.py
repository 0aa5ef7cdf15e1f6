"""A segmentation model that computes its own loss."""

import torch
import torch.nn.functional as F
from torch import nn


class Segmenter(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Conv2d(256, 1, 1)

    def forward(self, images, masks=None):
        logits = self.head(self.backbone(images))
        if masks is None:
            return logits
        return F.binary_cross_entropy_with_logits(logits, masks)


def train(backbone, loader, args):
    model = Segmenter(backbone).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    for images, masks in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", enabled=args.amp):
            loss = model(images.cuda(), masks.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
