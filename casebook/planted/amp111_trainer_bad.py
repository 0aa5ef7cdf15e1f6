"""Classifier that is resumed from its last checkpoint."""

import torch
from torch import nn
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, train_set, config):
        self.device = torch.device("cuda")
        self.model = model.to(self.device)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config["lr"], weight_decay=0.05)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, config["epochs"])
        self.scaler = torch.amp.GradScaler("cuda")
        self.loader = DataLoader(
            train_set, batch_size=config["batch_size"], shuffle=True, num_workers=4, pin_memory=True
        )
        self.config = config
        self.epoch = 0

    def compute_loss(self, images, labels):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = self.model(images)
            return self.criterion(logits, labels)

    def optimize(self, loss):
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config["clip"])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return norm

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for images, labels in self.loader:
            images = images.to(self.device, non_blocking=True)
            labels = labels.to(self.device, non_blocking=True)
            loss = self.compute_loss(images, labels)
            self.optimize(loss)
            total += loss.detach()
        self.scheduler.step()
        return total.item() / len(self.loader)

    def save(self, path):
        state = {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.epoch = state["epoch"] + 1

    def fit(self):
        while self.epoch < self.config["epochs"]:
            loss = self.train_epoch()
            print(f"epoch {self.epoch} loss {loss:.4f}")
            self.save("last.pt")
            self.epoch += 1
