"""Captions for images on the processor."""

import torch
from torch import nn
from torch.amp import GradScaler, autocast


class Captioner:
    def __init__(self, encoder, decoder, vocabulary, device="cpu"):
        self.encoder, self.decoder, self.device = encoder.to(device), decoder.to(device), device
        self.enc_opt = torch.optim.AdamW(encoder.parameters(), lr=1e-5)
        self.dec_opt = torch.optim.AdamW(decoder.parameters(), lr=4e-4)
        self.grad_scaler = GradScaler()
        self.criterion = nn.CrossEntropyLoss(ignore_index=vocabulary["<pad>"])

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            losses = []
            for images, captions in loader:
                images, captions = images.to(self.device), captions.to(self.device)
                losses.append(self.training_step(images, captions))
            print(f"epoch {epoch}: {torch.stack(losses).mean().item():.3f}")

    def training_step(self, images, captions):
        self.enc_opt.zero_grad()
        self.dec_opt.zero_grad()
        with autocast("cpu", dtype=torch.float16):
            memory = self.encoder(images)
            scores = self.decoder(captions[:, :-1], memory)
            loss = self.criterion(scores.flatten(0, 1), captions[:, 1:].flatten())
        self.grad_scaler.scale(loss).backward()
        self.grad_scaler.unscale_(self.enc_opt)
        self.grad_scaler.unscale_(self.dec_opt)
        nn.utils.clip_grad_norm_(self.encoder.parameters(), 0.1)
        nn.utils.clip_grad_norm_(self.decoder.parameters(), 5.0)
        self.grad_scaler.step(self.enc_opt)
        self.grad_scaler.step(self.dec_opt)
        self.grad_scaler.update()
        return loss.detach()
