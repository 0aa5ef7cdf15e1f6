"""REINFORCE: log-probabilities of one episode are kept with their graph, because the update needs them."""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, 128), nn.Tanh(), nn.Linear(128, actions))
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, observation):
        return Categorical(logits=self.body(observation))


def play(policy, length):
    position = torch.randn(64)
    for _ in range(length):
        distribution = policy(torch.stack([position, position.sin(), position.cos()], dim=1))
        action = distribution.sample()
        policy.saved_log_probs.append(distribution.log_prob(action))
        moved = position + (action - 1) * 0.5
        policy.rewards.append(position.abs() - moved.abs())
        position = moved


def update(policy, optimizer):
    returns = torch.stack(policy.rewards).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(policy.saved_log_probs) * (returns - returns.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    reward = torch.stack(policy.rewards).sum(0).mean().item()
    del policy.saved_log_probs[:]
    del policy.rewards[:]
    return loss.item(), reward


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    policy = Policy(3, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for episode in range(args.steps):
        play(policy, length=5)
        loss, reward = update(policy, optimizer)
        if episode % 10 == 9:
            print(f"episode {episode + 1} loss {loss:.4f} reward {reward:.3f}")
