"""A trainer that follows the distance between the student's and its own smoothed features."""

import torch
from torch import nn, optim


class Trainer:
    def __init__(self, net: nn.Module, loader, lr=0.01, device="cuda"):
        self.net = net.to(device)
        self.loader = loader
        self.device = device
        self.opt = optim.SGD(self.net.parameters(), lr=lr, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()
        self.consistency = []
        self.losses = []

    def train_step(self, images, labels):
        images, labels = images.to(self.device), labels.to(self.device)
        logits = self.net(images)
        loss = self.criterion(logits, labels)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        noisy = self.net(images + 0.1 * torch.randn_like(images))
        gap = (noisy - logits.detach()).pow(2).mean()
        self.consistency.append(gap.item())
        self.losses.append(loss.item())

    def fit(self, epochs):
        for epoch in range(epochs):
            for images, labels in self.loader:
                self.train_step(images, labels)
            recent = self.consistency[-len(self.loader) :]
            print(epoch, sum(self.losses[-100:]) / 100, float(sum(recent)) / len(recent))


def build(loader):
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    return Trainer(net, loader)
