"""A running mean of the loss and of a feature, kept in float32."""

import torch


def train(model, criterion, optimizer, loader, device):
    center = torch.zeros(256, device=device)
    running = torch.zeros(1, device=device, dtype=torch.float32)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        features, logits = model(images)
        loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        center.mul_(0.999).add_(features.detach().mean(0), alpha=0.001)
    return running.item() / len(loader), center
