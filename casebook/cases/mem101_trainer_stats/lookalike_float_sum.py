"""A trainer that looks at one validation batch after every step."""

import argparse
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Stats:
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0


class Trainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()
        self.stats = Stats()

    def train_step(self, x, y):
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def evaluate(self, x, y):
        self.model.eval()
        with torch.inference_mode():
            logits = self.model(x)
            loss = self.criterion(logits, y)
        self.stats.loss_sum += float(loss.detach())
        self.stats.correct += int((logits.argmax(dim=1) == y).sum())
        self.stats.seen += len(y)

    def summary(self, batches):
        return f"val loss {float(self.stats.loss_sum) / batches:.4f} acc {self.stats.correct / self.stats.seen:.3f}"


def loader(seed, count, batch_size):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 32, generator=generator)
    y = (x[:, :8].sum(dim=1) > 0).long()
    return DataLoader(TensorDataset(x, y), batch_size=batch_size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
    )
    trainer = Trainer(model)
    pairs = zip(loader(1, args.steps * 64, 64), loader(2, args.steps * 128, 128))
    for step, (train_batch, valid_batch) in enumerate(pairs, start=1):
        loss = trainer.train_step(*train_batch)
        trainer.evaluate(*valid_batch)
        if step % 10 == 0:
            print(f"step {step} train loss {loss:.4f} {trainer.summary(step)}")


if __name__ == "__main__":
    main()
