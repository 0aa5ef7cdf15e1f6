"""Contrastive training: the loss is meant to be computed in float32."""

import torch
import torch.nn.functional as F


def training_step(model, optimizer, scaler, images, captions, labels):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        logits = model(images, captions)
        with torch.autocast("cuda", enabled=False):
            logits = logits.float()
            forward = F.cross_entropy(logits, labels)
            backward = F.cross_entropy(logits.t(), labels)
            loss = (forward + backward) / 2
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def train(model, loader, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for images, captions in loader:
        labels = torch.arange(len(images), device=device)
        training_step(model, optimizer, scaler, images.to(device), captions.to(device), labels)
