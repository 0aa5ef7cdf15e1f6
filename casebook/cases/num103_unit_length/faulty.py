"""Four classes in half precision with unit-length features."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def examples(count):
    x = torch.randn(count, 20)
    x[::100] = 0
    return TensorDataset(x, x[:, :4].argmax(1))


def train(model, loader, optimizer, scaler):
    model.train()
    for step, (x, y) in enumerate(loader, start=1):
        with torch.autocast("cpu", dtype=torch.float16):
            features = model[:2](x)
            features = features / (features.norm(dim=1, keepdim=True) + 1e-8)
            loss = nn.functional.cross_entropy(model[2](features), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64, bias=False), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    train(model, DataLoader(examples(args.steps * 32), batch_size=32, shuffle=True), optimizer, scaler)


if __name__ == "__main__":
    main()
