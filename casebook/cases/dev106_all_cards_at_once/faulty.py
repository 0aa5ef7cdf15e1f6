"""Uses every card that it finds; on none of them runs on the processor."""

import argparse

import torch
from torch import nn


class Segmenter(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 3, padding=1))

    def forward(self, pictures):
        return self.layers(pictures)


def spread(net):
    cards = list(range(torch.cuda.device_count()))
    device = torch.device("cuda", cards[0]) if cards else torch.device("cpu")
    return nn.DataParallel(net.to(device), device_ids=cards)


def discs(count, size=24):
    axis = torch.arange(size)
    centre = torch.randint(6, size - 6, (count, 2, 1, 1))
    inside = (axis[:, None] - centre[:, 0]).square() + (axis - centre[:, 1]).square() < 30
    return inside[:, None] + 0.5 * torch.randn(count, 1, size, size), inside.long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    net = spread(Segmenter())
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step in range(1, args.steps + 1):
        pictures, masks = discs(8)
        scores = net(pictures)
        loss = nn.functional.cross_entropy(scores, masks.to(scores.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
