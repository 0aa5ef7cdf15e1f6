"""Transfer learning: the optimiser is made early, then the classifier is replaced."""

import argparse
import copy

import torch
import torch.nn as nn
from flowers import make_loaders
from torch.optim import lr_scheduler
from torchvision import models


def setup(num_classes: int, lr: float, device: torch.device):
    model_ft = models.resnet34(weights="IMAGENET1K_V1")
    optimizer_ft = torch.optim.SGD(model_ft.parameters(), lr=lr, momentum=0.9)
    exp_lr = lr_scheduler.StepLR(optimizer_ft, step_size=7, gamma=0.1)
    num_ftrs = model_ft.fc.in_features
    model_ft.fc = nn.Linear(num_ftrs, num_classes)
    model_ft = model_ft.to(device)
    return model_ft, optimizer_ft, exp_lr


@torch.no_grad()
def accuracy(model, loader, device):
    model.eval()
    correct, seen = torch.zeros((), device=device), 0
    for inputs, labels in loader:
        inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        correct += (model(inputs).argmax(1) == labels).sum()
        seen += labels.numel()
    return (correct / seen).item()


def train_model(model, criterion, optimizer, scheduler, loaders, device, num_epochs=25):
    best, best_acc = copy.deepcopy(model.state_dict()), 0.0
    for epoch in range(num_epochs):
        model.train()
        for inputs, labels in loaders["train"]:
            inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
        scheduler.step()
        acc = accuracy(model, loaders["val"], device)
        print(f"Epoch {epoch}/{num_epochs - 1} acc {acc:.4f}")
        if acc > best_acc:
            best, best_acc = copy.deepcopy(model.state_dict()), acc
    model.load_state_dict(best)
    return model


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("root")
    ap.add_argument("--lr", type=float, default=0.001)
    ns = ap.parse_args()
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, opt, sched = setup(102, ns.lr, dev)
    train_model(model, nn.CrossEntropyLoss(), opt, sched, make_loaders(ns.root), dev)
