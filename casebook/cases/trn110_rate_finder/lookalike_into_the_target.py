"""A target network takes the live weights over every ten steps: `load_state_dict` copies."""

import argparse

import torch
from torch import nn


class Values:
    def __init__(self):
        self.live = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
        self.target = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.live.parameters(), lr=1e-3)
        self.synchronise()

    def synchronise(self):
        weights = self.live.state_dict()
        self.target.load_state_dict(weights)

    def learn(self, state, action, reward, after):
        wanted = reward + 0.9 * self.target(after).amax(1)
        loss = nn.functional.smooth_l1_loss(self.live(state).gather(1, action[:, None]).squeeze(1), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    values = Values()
    for step in range(1, args.steps + 1):
        state = torch.randn(64, 6)
        loss = values.learn(state, torch.randint(0, 3, (64,)), state[:, 0], state.roll(1, 0))
        if step % 10 == 0:
            values.synchronise()
            print(f"{step} {loss:.4f}")
