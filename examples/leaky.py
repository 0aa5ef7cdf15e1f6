"""Train a small classifier, checking it on validation data after every epoch."""

import argparse
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Stats:
    losses: list = field(default_factory=list)
    correct: int = 0
    seen: int = 0


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.stats = Stats()

    def train_epoch(self, loader):
        self.model.train()
        total = 0.0
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(loader)

    def evaluate(self, loader):
        self.model.eval()
        for x, y in loader:
            logits = self.model(x)
            loss = self.criterion(logits, y)
            self.stats.losses.append(loss)
            self.stats.correct += (logits.argmax(dim=1) == y).sum().item()
            self.stats.seen += len(y)
        return sum(self.stats.losses) / len(self.stats.losses)


def make_loader(samples, batch_size):
    x = torch.randn(samples, 3, 32, 32)
    y = (x.mean(dim=(1, 2, 3)) > 0).long()
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip
    trainer = Trainer(model, args.lr)
    train, valid = make_loader(256, 32), make_loader(128, 32)
    for epoch in range(1, args.epochs + 1):
        started = time.perf_counter()
        train_loss = trainer.train_epoch(train)
        valid_loss = trainer.evaluate(valid)
        accuracy = trainer.stats.correct / trainer.stats.seen
        took = time.perf_counter() - started
        print(f"epoch {epoch:2d}  train {train_loss:.4f}  valid {valid_loss:.4f}  acc {accuracy:.3f}  {took:.1f} s")


if __name__ == "__main__":
    main()
