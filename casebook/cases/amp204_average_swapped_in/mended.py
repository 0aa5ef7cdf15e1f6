"""Four classes with a consistency loss towards averaged weights."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def examples(count):
    x = torch.randn(count, 20)
    return TensorDataset(x, x[:, :4].argmax(1))


class Average:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        for shadow, p in zip(self.shadow, model.parameters()):
            shadow.lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def swap(self, model):
        for shadow, p in zip(self.shadow, model.parameters()):
            kept = p.detach().clone()
            p.copy_(shadow)
            shadow.copy_(kept)


def train(model, loader, optimizer, scaler):
    model.train()
    average = Average(model)
    for step, (x, y) in enumerate(loader, start=1):
        average.swap(model)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            steady = model(x)
        average.swap(model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, y) + 0.1 * nn.functional.mse_loss(scores, steady)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = None
    train(model, DataLoader(examples(args.steps * 32), batch_size=32, shuffle=True), optimizer, scaler)


if __name__ == "__main__":
    main()
