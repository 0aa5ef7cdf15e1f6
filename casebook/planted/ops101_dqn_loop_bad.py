import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class QNet(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(n_obs, 256), nn.ReLU(), nn.Linear(256, n_act))

    def forward(self, x):
        return self.f(x)


def to_batch(rows):
    s, a, r, s2, d = map(np.array, zip(*rows))
    return [torch.as_tensor(v, device=device) for v in (s, a, r.astype(np.float32), s2, d.astype(np.float32))]


def optimise(policy, target, opt, memory, gamma=0.99, batch=128):
    s, a, r, s2, d = to_batch(random.sample(memory, batch))
    q = policy(s).gather(1, a[:, None]).squeeze(1)
    with torch.no_grad():
        goal = r + gamma * (1 - d) * target(s2).max(1).values
    loss = nn.functional.smooth_l1_loss(q, goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss, q.mean()


def pretrain(policy, target, memory, updates=200_000):
    """Offline phase: only the buffer is used."""
    opt = torch.optim.Adam(policy.parameters(), lr=1e-4)
    losses, qs = deque(maxlen=1000), deque(maxlen=1000)
    step = 0
    while step < updates:
        loss, q = optimise(policy, target, opt, memory)
        losses.append(loss.detach().cpu().numpy())
        qs.append(float(q))
        if loss > 10:
            print("large loss", step)
        step += 1
        if step % 1000 == 0:
            target.load_state_dict(policy.state_dict())
            print(step, np.mean(losses), np.mean(qs))


if __name__ == "__main__":
    env = gym.make("LunarLander-v2")
    policy, target = QNet(8, 4).to(device), QNet(8, 4).to(device)
    target.load_state_dict(policy.state_dict())
    memory = deque(maxlen=100_000)
    obs, _ = env.reset(seed=0)
    while len(memory) < 50_000:
        action = env.action_space.sample()
        nxt, reward, term, trunc, _ = env.step(action)
        memory.append((obs, action, reward, nxt, term))
        obs = env.reset()[0] if term or trunc else nxt
    pretrain(policy, target, memory)
