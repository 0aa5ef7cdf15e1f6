"""Training with the AMP names of today."""

import torch
from torch.amp import GradScaler, autocast


def train(model, criterion, optimizer, loader, amp: bool = True):
    scaler = GradScaler("cuda", enabled=amp)
    for images, labels in loader:
        optimizer.zero_grad()
        with autocast("cuda", enabled=amp):
            loss = criterion(model(images.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return {"scaler": scaler.state_dict(), "step": torch.tensor(len(loader))}
