"""A trainer whose epoch method is decorated with autocast."""

import torch
from torch import nn


class Trainer:
    def __init__(self, network, optimizer, scaler, device):
        self.network, self.optimizer, self.scaler, self.device = network, optimizer, scaler, device
        self.criterion = nn.CrossEntropyLoss()

    def run_epoch(self, loader):
        total = 0.0
        for images, labels in loader:
            total += self.run_step(images.to(self.device), labels.to(self.device))
        return total / len(loader)

    def run_step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.criterion(self.network(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    @torch.no_grad()
    @torch.autocast("cuda", dtype=torch.float16)
    def evaluate(self, loader):
        hits = 0
        for images, labels in loader:
            hits += (self.network(images.to(self.device)).argmax(1).cpu() == labels).sum().item()
        return hits / len(loader.dataset)
