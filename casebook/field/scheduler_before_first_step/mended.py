"""Sentence-pair regression with a one-cycle schedule and mixed precision."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(50, 128), nn.Tanh(), nn.Linear(128, 32))

    def forward(self, left, right):
        return (self.encoder(left) * self.encoder(right)).sum(-1)


class Trainer:
    def __init__(self, model, total_steps):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.lr_scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 3e-3, total_steps=total_steps)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
        self.criterion = nn.MSELoss(reduction="sum")

    def train_one(self, left, right, similarity):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = self.criterion(self.model(left, right).float(), similarity)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        before = self.scaler.get_scale()
        self.scaler.update()
        if self.scaler.get_scale() >= before:
            self.lr_scheduler.step()
        return loss.item() / len(similarity)

    def train(self, loader):
        for step, batch in enumerate(loader, 1):
            loss = self.train_one(*batch)
            if step in (10, 30, 60):
                rate, stepped = self.lr_scheduler.get_last_lr()[0], bool(self.optimizer.state)
                print(f"step {step} loss {loss:.3f} rate {rate:.2e} stepped {stepped}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    left, right = torch.randn(2, args.steps * 64, 50)
    data = TensorDataset(left, right, (left * right).mean(-1) * 5)
    Trainer(Siamese(), args.steps).train(DataLoader(data, batch_size=64, shuffle=True))


if __name__ == "__main__":
    main()
