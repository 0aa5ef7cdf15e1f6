"""Trains a small convolutional classifier on FashionMNIST and reports the validation loss each epoch."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc = nn.Linear(9216, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(torch.flatten(x, 1))


def train(model, loader, optimizer, device):
    model.train()
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()


def validate(model, loader, device):
    val_loss = 0
    correct = 0
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        output = model(data)
        val_loss += F.cross_entropy(output, target)
        correct += (output.argmax(1) == target).sum().item()
    print(f"validation loss {val_loss / len(loader):.4f}, accuracy {correct / len(loader.dataset):.2%}")


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = transforms.ToTensor()
    train_set = datasets.FashionMNIST("data", train=True, download=True, transform=transform)
    val_set = datasets.FashionMNIST("data", train=False, transform=transform)
    train_loader = DataLoader(train_set, batch_size=128, shuffle=True, num_workers=2)
    val_loader = DataLoader(val_set, batch_size=512, num_workers=2)
    model = Classifier().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        train(model, train_loader, optimizer, device)
        validate(model, val_loader, device)


if __name__ == "__main__":
    main()
