"""Fine-tunes a pretrained network and measures accuracy after each epoch, all in one function."""

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader


def main(train_set, val_set, epochs=10):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = torchvision.models.resnet18(weights="DEFAULT")
    net.fc = nn.Linear(net.fc.in_features, 10)
    net.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    train_loader = DataLoader(train_set, 64, shuffle=True, num_workers=4)
    val_loader = DataLoader(val_set, 256, num_workers=4)
    for epoch in range(epochs):
        net.train()
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
        net.eval()
        correct = 0
        for images, labels in val_loader:
            with torch.no_grad():
                scores = net(images.to(device))
            correct += (scores.argmax(1).cpu() == labels).sum().item()
        print(f"epoch {epoch}: {correct / len(val_set):.2%}")


if __name__ == "__main__":
    data = torchvision.datasets.CIFAR10("data", download=True, transform=torchvision.transforms.ToTensor())
    main(data, data)
