"""REINFORCE with a baseline on vectorised environments."""

import gymnasium as gym
import torch
import torch.nn as nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, n_actions)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def advantages(rewards, values, dones, gamma=0.99):
    """Rewards, values and dones are (T, N) tensors."""
    steps, envs = rewards.shape
    adv = torch.zeros_like(rewards)
    running = torch.zeros(envs)
    # the recursion over time stays, the environments go in one operation
    for t in reversed(range(steps - 1)):
        delta = rewards[t] + gamma * values[t + 1] * (1 - dones[t]) - values[t]
        running = delta + gamma * 0.95 * (1 - dones[t]) * running
        adv[t] = running
    return adv


def collect(envs, net, obs, horizon, device):
    store = {k: [] for k in ("obs", "actions", "rewards", "dones", "values")}
    for _ in range(horizon):
        x = torch.as_tensor(obs, dtype=torch.float32, device=device)
        with torch.no_grad():
            dist, value = net(x)
            action = dist.sample()
        obs, reward, term, trunc, _ = envs.step(action.cpu().numpy())
        store["obs"].append(x)
        store["actions"].append(action)
        store["rewards"].append(torch.as_tensor(reward, dtype=torch.float32))
        store["dones"].append(torch.as_tensor(term | trunc, dtype=torch.float32))
        store["values"].append(value.cpu())
    return obs, {k: torch.stack(v) for k, v in store.items()}


def main():
    device = torch.device("cpu")
    envs = gym.make_vec("CartPole-v1", num_envs=16)
    net = ActorCritic(4, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4)
    obs, _ = envs.reset(seed=1)
    for update in range(500):
        obs, batch = collect(envs, net, obs, 128, device)
        adv = advantages(batch["rewards"], batch["values"], batch["dones"])
        returns = adv + batch["values"]
        dist, value = net(batch["obs"].flatten(0, 1))
        logp = dist.log_prob(batch["actions"].flatten())
        loss = -(logp * adv.flatten()).mean() + 0.5 * (value - returns.flatten()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 10 == 0:
            print(update, batch["rewards"].sum().item())


if __name__ == "__main__":
    main()
