from typing import Dict

import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyDetector(nn.Module):
    def __init__(self, anchors=9, classes=20):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU())
        self.cls = nn.Conv2d(64, anchors * classes, 1)
        self.box = nn.Conv2d(64, anchors * 4, 1)
        self.classes = classes

    def forward(self, x):
        f = self.backbone(x)
        n = len(x)
        cls = self.cls(f).permute(0, 2, 3, 1).reshape(n, -1, self.classes)
        box = self.box(f).permute(0, 2, 3, 1).reshape(n, -1, 4)
        return cls, box


class DetectionLoss(nn.Module):
    def forward(self, cls, box, tcls, tbox) -> Dict[str, torch.Tensor]:
        pos = tcls.sum(-1) > 0
        return {
            "cls": F.binary_cross_entropy_with_logits(cls, tcls, reduction="sum") / pos.sum().clamp(min=1),
            "box": F.smooth_l1_loss(box[pos], tbox[pos]),
        }


def train_one_epoch(model, criterion, data, optimizer, weights):
    for images, tcls, tbox in data:
        losses = criterion(*model(images), tcls, tbox)
        total = torch.zeros(())
        for name, value in losses.items():
            total = total + weights[name] * value
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        print({k: round(v.item(), 3) for k, v in losses.items()})


if __name__ == "__main__":
    net = TinyDetector()
    opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    n = 9 * 16 * 16
    data = [(torch.rand(2, 3, 64, 64), (torch.rand(2, n, 20) > 0.99).float(), torch.rand(2, n, 4)) for _ in range(5)]
    train_one_epoch(net, DetectionLoss(), data, opt, {"cls": 1.0, "box": 50.0})
