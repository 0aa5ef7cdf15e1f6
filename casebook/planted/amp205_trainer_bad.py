"""A head in float32 on top of a backbone in half precision."""

import torch
from torch import nn
from torchvision.models import resnet50


class Trainer:
    def __init__(self, classes):
        self.backbone = resnet50(num_classes=512).cuda()
        self.head = nn.Linear(512, classes).cuda()
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD([*self.backbone.parameters(), *self.head.parameters()], lr=0.1)

    def step(self, images, labels):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            features = self.backbone(images.cuda())
            with torch.autocast("cuda", enabled=False):
                loss = self.criterion(self.head(features), labels.cuda())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
