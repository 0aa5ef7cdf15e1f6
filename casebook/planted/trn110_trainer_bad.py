"""Train a small convolutional classifier on pictures of handwritten digits."""

import argparse
import copy
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

log = logging.getLogger(__name__)


class ConvNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(64)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(64 * 7 * 7, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = self.drop(x.flatten(1))
        return self.fc(x)


class Trainer:
    def __init__(self, net, train_loader, val_loader, device, lr=1e-3, epochs=10):
        self.net = net.to(device)
        self.train_loader = train_loader
        self.val_loader = val_loader
        self.device = device
        self.epochs = epochs
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.3)
        self.best_accuracy = 0.0
        self.best_state = None

    def train_one_epoch(self):
        self.net.train()
        running = 0.0
        for images, labels in self.train_loader:
            images = images.to(self.device, non_blocking=True)
            labels = labels.to(self.device, non_blocking=True)
            logits = self.net(images)
            loss = self.criterion(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            running += loss.detach()
        return running.item() / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        correct = torch.zeros((), device=self.device)
        for images, labels in self.val_loader:
            images = images.to(self.device, non_blocking=True)
            labels = labels.to(self.device, non_blocking=True)
            predicted = self.net(images).argmax(dim=1)
            correct += (predicted == labels).sum()
        return correct.item() / len(self.val_loader.dataset)

    def fit(self):
        for epoch in range(self.epochs):
            loss = self.train_one_epoch()
            accuracy = self.validate()
            if accuracy > self.best_accuracy:
                self.best_accuracy = accuracy
                self.best_state = self.net.state_dict()
            self.scheduler.step()
            log.info("epoch %d loss %.4f accuracy %.4f", epoch, loss, accuracy)
        self.net.load_state_dict(self.best_state)
        return self.best_accuracy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    to_tensor = transforms.ToTensor()
    train_set = datasets.MNIST(args.data, train=True, download=True, transform=to_tensor)
    val_set = datasets.MNIST(args.data, train=False, transform=to_tensor)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, num_workers=4, pin_memory=True)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=4, pin_memory=True)
    trainer = Trainer(ConvNet(), train_loader, val_loader, device, lr=args.lr)
    print(f"best accuracy {trainer.fit():.4f}")


if __name__ == "__main__":
    main()
