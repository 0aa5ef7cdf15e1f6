"""Per-class IoU of a segmentation model."""

from collections import defaultdict

import torch
from torch.utils.data import DataLoader


class SegmentationMeter:
    def __init__(self, num_classes, ignore=255):
        self.num_classes = num_classes
        self.ignore = ignore
        self.matrix = torch.zeros(num_classes, num_classes, dtype=torch.long)

    def update(self, logits, target):
        pred = logits.argmax(dim=1).flatten()
        gold = target.flatten()
        # count every pixel
        for i in range(len(gold)):
            if gold[i] != self.ignore:
                self.matrix[gold[i], pred[i]] += 1

    def iou(self):
        hit = self.matrix.diag().float()
        union = self.matrix.sum(0) + self.matrix.sum(1) - self.matrix.diag()
        return hit / union.clamp(min=1)


@torch.no_grad()
def validate(model, loader: DataLoader, num_classes: int):
    model.eval()
    meter = SegmentationMeter(num_classes)
    seen = defaultdict(int)
    for images, masks, names in loader:
        logits = model(images)
        meter.update(logits, masks)
        for name in names:
            seen[name.split("/")[0]] += 1
    iou = meter.iou()
    for c, value in enumerate(iou.tolist()):
        print(f"class {c}: {value:.3f}")
    print("mean", iou.mean().item(), dict(seen))
    return iou


def compare(model_a, model_b, loader, num_classes):
    """True where the first model is better, class by class."""
    a, b = validate(model_a, loader, num_classes), validate(model_b, loader, num_classes)
    return [bool(better) for better in (a > b).tolist()]
