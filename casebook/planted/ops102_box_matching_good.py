"""A detector's training loop: the targets are matched to the anchors on the host."""

import argparse

import torch
from detection_data import BoxDataset, collate
from torch import nn
from torch.utils.data import DataLoader
from torchvision.models import mobilenet_v3_large
from torchvision.ops import box_iou


class Detector(nn.Module):
    def __init__(self, num_classes: int, num_anchors: int):
        super().__init__()
        self.trunk = mobilenet_v3_large(weights="DEFAULT").features
        self.cls = nn.Conv2d(960, num_anchors * num_classes, 1)
        self.reg = nn.Conv2d(960, num_anchors * 4, 1)
        self.num_classes = num_classes

    def forward(self, images):
        feats = self.trunk(images)
        n = images.shape[0]
        logits = self.cls(feats).permute(0, 2, 3, 1).reshape(n, -1, self.num_classes)
        deltas = self.reg(feats).permute(0, 2, 3, 1).reshape(n, -1, 4)
        return logits, deltas


def train(args: argparse.Namespace) -> None:
    device = torch.device(args.device)
    data = BoxDataset(args.data)
    loader = DataLoader(data, args.batch, shuffle=True, collate_fn=collate, num_workers=6, pin_memory=True)
    model = Detector(args.classes, 9).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    cls_loss, box_loss = nn.CrossEntropyLoss(), nn.SmoothL1Loss()
    anchors = data.anchors().to(device)
    model.train()
    for epoch in range(args.epochs):
        for images, boxes, labels in loader:
            images = images.to(device, non_blocking=True)
            boxes = boxes.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            logits, deltas = model(images)
            iou = box_iou(boxes.flatten(0, 1), anchors)
            best = iou.max(dim=0).indices
            target = boxes.flatten(0, 1)[best]
            wanted = labels.flatten()[best].expand(logits.shape[0], -1)
            loss = cls_loss(logits.flatten(0, 1), wanted.reshape(-1)) + box_loss(deltas, target.expand_as(deltas))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        torch.save({"model": model.state_dict(), "epoch": epoch}, args.out)


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("data")
    ap.add_argument("--out", default="detector.pt")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--classes", type=int, default=21)
    ap.add_argument("--epochs", type=int, default=12)
    train(ap.parse_args())
