"""A trainer that counts steps, not epochs."""

from itertools import cycle

import torch
from torch import nn


class StepTrainer:
    def __init__(self, model, train_loader, max_steps):
        self.model = model
        self.batches = cycle(train_loader)
        self.max_steps = max_steps
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        self.loss = nn.CrossEntropyLoss()

    def train(self):
        self.model.train()
        for step in range(self.max_steps):
            inputs, targets = next(self.batches)
            loss = self.loss(self.model(inputs), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 100 == 0:
                print(step, loss.item())
