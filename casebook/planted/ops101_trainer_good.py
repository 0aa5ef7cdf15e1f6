import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class ConvNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc = nn.Linear(64 * 12 * 12, classes)

    def forward(self, images):
        h = F.relu(self.conv1(images))
        h = F.max_pool2d(F.relu(self.conv2(h)), 2)
        return self.fc(torch.flatten(h, 1))


class Trainer:
    def __init__(self, args):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.net = ConvNet().to(self.device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=args.lr)
        self.criterion = nn.CrossEntropyLoss()
        data = datasets.MNIST(args.data, train=True, download=True, transform=transforms.ToTensor())
        held_out = datasets.MNIST(args.data, train=False, transform=transforms.ToTensor())
        self.train_loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=2, pin_memory=True)
        self.val_loader = DataLoader(held_out, batch_size=512, num_workers=2, pin_memory=True)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_epoch(epoch)
            print(f"epoch {epoch}: accuracy {self.validate():.4f}")

    def train_epoch(self, epoch):
        self.net.train()
        for step, (images, labels) in enumerate(self.train_loader):
            images = images.to(self.device, non_blocking=True)
            labels = labels.to(self.device, non_blocking=True)
            logits = self.net(images)
            loss = self.criterion(logits, labels)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.record_norms(step)
            if step % 100 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")

    def record_norms(self, step):
        self.norms = torch.stack([p.grad.norm() for p in self.net.parameters() if p.grad is not None])

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        correct, seen = 0, 0
        for images, labels in self.val_loader:
            images = images.to(self.device, non_blocking=True)
            labels = labels.to(self.device, non_blocking=True)
            correct += (self.net(images).argmax(1) == labels).sum().item()
            seen += labels.numel()
        return correct / seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    Trainer(args).fit(args.epochs)
