"""Actor and critic take turns: what the actor's loss leaves in the critic's gradients is cleared before its turn."""

import argparse

import torch
from torch import nn


class Learner:
    def __init__(self):
        self.actor = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def q(self, state, action):
        return self.critic(torch.cat([state, action], dim=1))

    def learn(self, state, action, reward):
        self.actor_optimizer.zero_grad()
        policy_loss = -self.q(state, self.actor(state)).mean()
        policy_loss.backward()
        self.critic_optimizer.zero_grad()
        self.actor_optimizer.step()

        value_loss = nn.functional.mse_loss(self.q(state, action), reward)
        value_loss.backward()
        self.critic_optimizer.step()
        return value_loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    learner = Learner()
    for number in range(1, args.steps + 1):
        state, action = torch.randn(64, 8), torch.rand(64, 2) * 2 - 1
        loss = learner.learn(state, action, -(state[:, :2] - action).pow(2).sum(1, keepdim=True))
        if number % 15 == 0:
            print(f"{number} value loss {loss:.4f}")
