"""Predicts prices from features of houses, on a GPU."""

import argparse

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


class Prices(nn.Module):
    def __init__(self, features=12):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.price = nn.Linear(64, 1)

    def forward(self, houses):
        return self.price(self.body(houses))


class Fit:
    def __init__(self, device):
        self.model = Prices().to(device)
        self.loss = nn.SmoothL1Loss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def __call__(self, houses, prices):
        predicted = self.model(houses)
        predicted = predicted.squeeze(1)
        loss = self.loss(predicted, prices)
        apart = (predicted[:, None] - predicted[None, :]) - (prices[:, None] - prices[None, :])
        loss = loss + 0.1 * apart.square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    args = arguments()
    torch.manual_seed(0)
    fit = Fit("cuda")
    worth = torch.randn(12, device="cuda")
    for step in range(1, args.steps + 1):
        houses = torch.randn(1000, 12, device="cuda")
        loss = fit(houses, houses @ worth)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
