"""Regression with slow weights; the scaler knows the inner optimizer only."""

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


class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner, every=5, alpha=0.5):
        self.inner, self.every, self.alpha, self.count = inner, every, alpha, 0
        super().__init__(inner.param_groups, {})
        self.slow = [p.detach().clone() for group in inner.param_groups for p in group["params"]]

    def step(self, closure=None):
        self.inner.step()
        self.count += 1
        if self.count % self.every == 0:
            self.pull()

    @torch.no_grad()
    def pull(self):
        fast = [p for group in self.inner.param_groups for p in group["params"]]
        for slow, p in zip(self.slow, fast):
            slow.lerp_(p, self.alpha)
            p.copy_(slow)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
        self.scaler = torch.amp.GradScaler("cpu")
        self.steps = 0

    def loss(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            return nn.functional.mse_loss(self.model(x).squeeze(-1), y)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer.inner)
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.scaler.step(self.optimizer.inner)
        self.scaler.update()
        self.optimizer.count += 1
        if self.optimizer.count % 5 == 0:
            self.optimizer.pull()
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
