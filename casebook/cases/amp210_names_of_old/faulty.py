"""An engine from some years ago: half precision where there is a card, single elsewhere."""

import argparse

import torch
from torch import nn
from torch.cuda import amp


class Engine:
    def __init__(self, net, rate):
        self.half = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.half else "cpu")
        self.net = net.to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=rate, nesterov=True, momentum=0.9)
        self.scaler = amp.GradScaler(enabled=self.half)

    def step(self, x, y):
        x, y = x.to(self.device), y.to(self.device)
        self.optimizer.zero_grad()
        with amp.autocast(enabled=self.half):
            loss = nn.functional.cross_entropy(self.net(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    engine = Engine(nn.Sequential(nn.Linear(18, 64), nn.ReLU(), nn.Linear(64, 4)), rate=0.05)
    for step in range(1, args.steps + 1):
        x = torch.randn(64, 18)
        loss = engine.step(x, x[:, :4].argmax(1))
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")
