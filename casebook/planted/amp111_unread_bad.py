"""Resumable training of a tabular transformer."""

import argparse
import pathlib

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR


def build(n_features: int) -> nn.Module:
    enc = nn.TransformerEncoderLayer(d_model=64, nhead=4, batch_first=True, norm_first=True)
    return nn.Sequential(
        nn.Linear(n_features, 64),
        nn.Unflatten(1, (1, 64)),
        nn.TransformerEncoder(enc, 3),
        nn.Flatten(),
        nn.Linear(64, 1),
    )


def save_checkpoint(path, epoch, net, optimizer, scheduler, scaler):
    torch.save(
        {
            "epoch": epoch,
            "net": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        },
        path,
    )


def load_checkpoint(path, net, optimizer, scheduler, scaler):
    ckpt = torch.load(path, map_location="cpu", weights_only=True)
    net.load_state_dict(ckpt["net"])
    optimizer.load_state_dict(ckpt["optimizer"])
    scheduler.load_state_dict(ckpt["scheduler"])
    return ckpt["epoch"] + 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--resume", type=pathlib.Path)
    ap.add_argument("--epochs", type=int, default=30)
    ns = ap.parse_args()
    x, y = torch.randn(10_000, 40), torch.randn(10_000, 1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 256, shuffle=True)
    net = build(40).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scheduler = StepLR(optimizer, 10, 0.3)
    scaler = torch.amp.GradScaler("cuda")
    start = load_checkpoint(ns.resume, net, optimizer, scheduler, scaler) if ns.resume else 0
    for epoch in range(start, ns.epochs):
        for xb, yb in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = nn.functional.smooth_l1_loss(net(xb.cuda()), yb.cuda())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        save_checkpoint("last.ckpt", epoch, net, optimizer, scheduler, scaler)


if __name__ == "__main__":
    main()
