"""Four classes; the input of the function is cast."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def examples(count):
    x = torch.randn(count, 20)
    return TensorDataset(x, x[:, :4].argmax(1))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        square = (x * x).sum(-1, keepdim=True)
        ctx.save_for_backward(x, square)
        return x * torch.rsqrt(square + 1e-3)

    @staticmethod
    def backward(ctx, grad):
        x, square = ctx.saved_tensors
        inverse = torch.rsqrt(square + 1e-3)
        return inverse * grad - x * inverse**3 * (x * grad).sum(-1, keepdim=True)


def train(model, loader, optimizer, scaler):
    model.train()
    for step, (x, y) in enumerate(loader, start=1):
        with torch.autocast("cpu", dtype=torch.float16):
            hidden = Scale.apply(model[:2](60 * x).float())
            loss = nn.functional.cross_entropy(model[2](hidden), y)
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
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    train(model, DataLoader(examples(args.steps * 32), batch_size=32, shuffle=True), optimizer, scaler)


if __name__ == "__main__":
    main()
