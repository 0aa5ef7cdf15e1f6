"""A trainer with callbacks."""

import torch
from torch import nn
from torch.utils.data import DataLoader


class Progress:
    def __init__(self, every):
        self.every = every

    def on_step(self, trainer, loss):
        if trainer.steps % self.every == 0:
            print(f"step {trainer.steps} loss {loss:.3f} scale {trainer.scaler.get_scale():g}")


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        self.callbacks = [Progress(10)]
        self.steps = 0

    def compute_loss(self, batch):
        tokens, labels = batch
        with torch.autocast("cpu", dtype=torch.float16):
            return nn.functional.cross_entropy(self.model(tokens), labels)

    def training_step(self, batch):
        self.model.train()
        loss = self.compute_loss(batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss.detach()

    def fit(self, data, batch_size):
        for batch in DataLoader(data, batch_size=batch_size, shuffle=True):
            loss = self.training_step(batch)
            self.steps += 1
            for callback in self.callbacks:
                callback.on_step(self, loss.item())
