"""Four classes in bfloat16 with unit-length features."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def examples(count):
    x = torch.randn(count, 20)
    return TensorDataset(x, x[:, :4].argmax(1))


def train(model, loader, optimizer, scaler):
    model.train()
    for step, (x, y) in enumerate(loader, start=1):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            features = model[:2](x)
            features = features / (features.norm(dim=1, keepdim=True) + 1e-8)
            loss = nn.functional.cross_entropy(model[2](features), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
