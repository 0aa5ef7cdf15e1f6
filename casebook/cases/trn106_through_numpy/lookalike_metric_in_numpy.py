"""Regression with a metric in numpy."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Readings(Dataset):
    def __init__(self, count):
        self.x = torch.randn(count, 16)
        self.y = self.x[:, 0] * self.x[:, 1] + self.x[:, 2]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.head = nn.Linear(64, 1)

    def forward(self, x):
        return self.head(self.body(x))


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        self.scaler = None
        self.steps = 0
        self.metric = 0.0

    def loss(self, x, y):
        return nn.functional.mse_loss(self.model(x).squeeze(-1), y)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            self.metric = abs(self.model(x).squeeze(-1).numpy() - y.numpy()).mean()
        return loss.item()

    def fit(self, loader):
        for x, y in loader:
            self.steps += 1
            loss = self.step(x, y)
            if self.steps % 15 == 0:
                print(f"{self.steps:4d}: {loss:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    Trainer(Network()).fit(DataLoader(Readings(args.steps * 64), batch_size=64, shuffle=True))


if __name__ == "__main__":
    main()
