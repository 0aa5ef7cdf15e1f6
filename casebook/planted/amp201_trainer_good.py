"""Image classifier trained by a class, the loss after the autocast block."""

import torch
import torch.nn.functional as F
from torchvision import models


class Trainer:
    def __init__(self, loader, device="cuda"):
        self.loader = loader
        self.device = device
        self.net = models.resnet18(num_classes=100).to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cuda")

    def step(self, images, labels):
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            scores = self.net(images)
            loss = F.cross_entropy(scores, labels)
        self.opt.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.detach()

    def fit(self, epochs):
        for epoch in range(epochs):
            for images, labels in self.loader:
                loss = self.step(images.to(self.device), labels.to(self.device))
            print(epoch, loss.item())
