"""A text-conditioned upsampler tuned with its weights in half precision."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build(use_fp16):
    model = nn.Sequential(nn.Linear(24, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 16))
    if use_fp16:
        model = model.half()
    return model


def run_step(model, optimizer, batch):
    condition, target = batch
    dtype = next(model.parameters()).dtype
    prediction = model(condition.to(dtype))
    loss = nn.functional.mse_loss(prediction.float(), target)
    loss.backward()
    optimizer.step()
    for p in model.parameters():
        p.grad = None
    return loss.item()


def run(steps, use_fp16):
    torch.manual_seed(0)
    condition = torch.randn(steps * 32, 24)
    target = condition[:, :16] * 0.5
    model = build(use_fp16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    loader = DataLoader(TensorDataset(condition, target), batch_size=32, shuffle=True)
    for i, batch in enumerate(loader, 1):
        loss = run_step(model, optimizer, batch)
        if i % 20 == 0:
            print(f"step {i}, loss {loss:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--full_precision", action="store_true")
    args = parser.parse_args()
    run(args.steps, not args.full_precision)
