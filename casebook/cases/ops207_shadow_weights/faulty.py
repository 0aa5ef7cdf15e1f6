"""Keeps an average of the weights beside them and swaps it in to measure."""

import argparse
import contextlib

import torch
from torch import nn


class Shadow:
    def __init__(self, net, decay=0.95):
        self.net, self.decay = net, decay
        self.shadow = {name: value.detach().clone() for name, value in net.named_parameters()}

    @torch.no_grad()
    def follow(self):
        for name, value in self.net.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * value

    @contextlib.contextmanager
    def swapped_in(self):
        live = {name: value.detach().clone() for name, value in self.net.named_parameters()}
        self.net.load_state_dict(self.shadow, strict=False)
        yield self.net
        self.net.load_state_dict(live, strict=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    shadow, held_out = Shadow(net), torch.randn(256, 12)
    for step in range(1, args.steps + 1):
        x = torch.randn(16, 12)
        loss = nn.functional.mse_loss(net(x), x.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shadow.follow()
        if step % 20 == 0:
            with shadow.swapped_in() as steady, torch.no_grad():
                measured = nn.functional.mse_loss(steady(held_out), held_out.mean(1, keepdim=True)).item()
            print(f"{step} {loss.item():.4f} {measured:.4f}")


if __name__ == "__main__":
    main()
