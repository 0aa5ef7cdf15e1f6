"""Gradient accumulation with a running total for the log."""

import torch
from torch import nn


def train_epoch(model, loader, optimizer, scheduler, accumulate=4):
    criterion = nn.CrossEntropyLoss()
    running_loss = 0.0
    optimizer.zero_grad()
    for i, (tokens, labels) in enumerate(loader):
        logits = model(tokens)
        loss = criterion(logits, labels) / accumulate
        loss.backward()
        running_loss += loss
        if (i + 1) % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    scheduler.step()
    return running_loss / len(loader)
