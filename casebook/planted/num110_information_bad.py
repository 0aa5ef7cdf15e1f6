from typing import Tuple

import torch
import torch.nn as nn


class Critic(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Linear(dim, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x).squeeze(-1)


class MutualInformation:
    """Jensen-Shannon estimator; also reports the distance of the two means."""

    def __init__(self, dim: int, lr: float = 1e-4) -> None:
        self.critic = Critic(2 * dim)
        self.optim = torch.optim.Adam(self.critic.parameters(), lr=lr)

    def bound(self, joint: torch.Tensor, marginal: torch.Tensor) -> torch.Tensor:
        tj, tm = self.critic(joint), self.critic(marginal)
        return torch.log(torch.sigmoid(tj)).mean() + torch.log(1 - torch.sigmoid(tm)).mean()

    def step(self, x: torch.Tensor, y: torch.Tensor) -> Tuple[float, float]:
        joint = torch.cat([x, y], 1)
        marginal = torch.cat([x, y[torch.randperm(len(y))]], 1)
        loss = -self.bound(joint, marginal)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item(), (x.mean(0) - y.mean(0)).norm().item()


def estimate(pairs, dim: int, rounds: int = 2000) -> float:
    mi = MutualInformation(dim)
    value = 0.0
    for r, (x, y) in zip(range(rounds), pairs):
        value, gap = mi.step(x, y)
        if r % 100 == 0:
            print(f"{r}: {-value:.4f} gap {gap:.3f}")
    return -value
