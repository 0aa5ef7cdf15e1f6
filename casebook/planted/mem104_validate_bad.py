import os
import sys

import torch
import torch.nn as nn
import torchvision.transforms as T
from torch.utils.data import DataLoader
from torchvision import datasets, models


def accuracy(output, target, topk=(1,)):
    maxk = max(topk)
    _, pred = output.topk(maxk, 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return [correct[:k].reshape(-1).float().sum().item() * 100.0 / target.size(0) for k in topk]


def train(loader, model, criterion, optimizer, epoch, device):
    model.train()
    for i, (images, target) in enumerate(loader):
        images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 100 == 0:
            print(epoch, i, loss.item())


def validate(loader, model, criterion, device):
    # switch to evaluate mode: no gradients are computed from here on
    model.eval()
    top1, seen, losses = 0.0, 0, 0.0
    for images, target in loader:
        images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
        output = model(images)
        losses += criterion(output, target).item() * images.size(0)
        top1 += accuracy(output, target)[0] * images.size(0)
        seen += images.size(0)
    print(f" * Acc@1 {top1 / seen:.3f} loss {losses / seen:.4f}")
    return top1 / seen


def main(root):
    device = "cuda"
    tf = T.Compose([T.RandomResizedCrop(224), T.ToTensor()])
    train_set = datasets.ImageFolder(os.path.join(root, "train"), tf)
    val_set = datasets.ImageFolder(os.path.join(root, "val"), tf)
    kw = dict(batch_size=256, num_workers=8, pin_memory=True)
    train_loader, val_loader = DataLoader(train_set, shuffle=True, **kw), DataLoader(val_set, **kw)
    model = models.resnet50(weights=None).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    best = 0.0
    for epoch in range(90):
        train(train_loader, model, criterion, optimizer, epoch, device)
        acc = validate(val_loader, model, criterion, device)
        if acc > best:
            best = acc
            torch.save({"epoch": epoch, "state_dict": model.state_dict()}, "best.pth")


if __name__ == "__main__":
    main(sys.argv[1])
