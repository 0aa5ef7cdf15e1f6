"""A trainer that clips what it optimizes."""

import torch
from torch import nn


class Trainer:
    def __init__(self, model, rate, largest):
        self.model, self.largest = model, largest
        self.trained = filter(lambda p: p.requires_grad, model.parameters())
        self.optimizer = torch.optim.AdamW(self.trained, lr=rate)

    def step(self, words, labels):
        loss = nn.functional.cross_entropy(self.model(words), labels)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, self.largest)
        self.optimizer.step()
        return loss.item()


def fit(model, batches):
    trainer = Trainer(model, 3e-4, 1.0)
    for words, labels in batches:
        print(trainer.step(words, labels))
