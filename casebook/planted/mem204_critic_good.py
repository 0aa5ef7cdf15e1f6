"""Fit a value function to returns."""

import torch
from torch import nn

critic = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)


def update(steps, horizon=2048, gamma=0.99):
    for _ in range(steps):
        states = torch.randn(horizon, 4)
        rewards = torch.rand(horizon)
        returns = torch.zeros(horizon)
        running = 0.0
        for t in reversed(range(horizon)):
            running = rewards[t] + gamma * running
            returns[t] = running
        values = critic(states).squeeze(-1)
        advantage = returns - values
        loss = advantage.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
