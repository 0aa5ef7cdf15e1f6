"""A trainer whose step is called within the region."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model, lr):
        self.model = model.cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss()

    def train_step(self, batch):
        self.optimizer.zero_grad()
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            loss = self.compute_loss(batch)
            loss.backward()
        self.optimizer.step()
        return loss.detach()

    def compute_loss(self, batch):
        return self.criterion(self.model(batch["pixels"].cuda()), batch["label"].cuda())

    def run(self, loader):
        for batch in loader:
            self.train_step(batch)
