"""Guesses how many stars a visitor gives."""

import argparse
from typing import NamedTuple

import torch
from torch import nn


class Visit(NamedTuple):
    hotel: torch.Tensor
    stay: torch.Tensor
    stars: torch.Tensor

    def to(self, device):
        return Visit(*(part.to(device) for part in self))


class Critic(nn.Module):
    def __init__(self, hotels):
        super().__init__()
        self.place = nn.Embedding(hotels, 16)
        self.judge = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, visit):
        return self.judge(torch.cat([self.place(visit.hotel), visit.stay], dim=1))


def objective(critic, visit):
    scores, stars = critic(visit), visit.stars
    return nn.functional.cross_entropy(scores, stars)


def visits(count, hotels):
    hotel, stay = torch.randint(0, hotels, (count,)), torch.randn(count, 4)
    stars = (3 + (hotel % 3 - 1) + stay[:, 0].round()).clamp(1, 5).long()
    return Visit(hotel, stay, stars)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    critic = Critic(40).to("cuda")
    optimizer = torch.optim.Adam(critic.parameters(), lr=5e-3)
    for step in range(1, args.steps + 1):
        loss = objective(critic, visits(64, 40).to("cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
