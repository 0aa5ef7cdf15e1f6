import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class TemporalConv(nn.Module):
    def __init__(self, c, k=3, d=1):
        super().__init__()
        self.pad = (k - 1) * d
        self.conv = nn.Conv1d(c, c, k, dilation=d)

    def forward(self, x):
        return x + F.relu(self.conv(F.pad(x, (self.pad, 0))))


class TCN(nn.Module):
    def __init__(self, c=64, levels=6):
        super().__init__()
        self.inp = nn.Conv1d(1, c, 1)
        self.blocks = nn.Sequential(*[TemporalConv(c, d=2**i) for i in range(levels)])
        self.out = nn.Conv1d(c, 1, 1)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


def run_training(model, optimizer, loader, n_epochs):
    for epoch in range(n_epochs):
        for window in loader:
            window = window.cuda()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                pred = model(window[..., :-1])
            loss = F.mse_loss(pred.float(), window[..., 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    model = TCN().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = torch.randn(64, 16, 1, 256)
    run_training(model, optimizer, loader, args.epochs)
    torch.save(model.state_dict(), "tcn.pt")


if __name__ == "__main__":
    main()
