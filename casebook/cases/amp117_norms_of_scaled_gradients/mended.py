"""Four classes; the norm of the gradients is watched, and steps with a large one are left out."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def examples(count):
    x = torch.randn(count, 20)
    return TensorDataset(x, x[:, :4].argmax(1))


def train(model, loader, optimizer, scaler):
    model.train()
    norms, outliers = [], 0
    for step, (x, y) in enumerate(loader, start=1):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        norms.append(norm.item())
        if norm > 1000:
            outliers += 1
            for p in model.parameters():
                p.grad.zero_()
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step} loss {norms[-1]:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    train(model, DataLoader(examples(args.steps * 32), batch_size=32, shuffle=True), optimizer, scaler)


if __name__ == "__main__":
    main()
