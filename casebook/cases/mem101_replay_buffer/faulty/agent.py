import torch
from torch import nn

from .memory import Replay, Transition


class Agent:
    def __init__(self, observation_size, actions, gamma=0.9):
        self.network = nn.Sequential(
            nn.Linear(observation_size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, actions)
        )
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        self.memory = Replay(capacity=1_000_000)
        self.gamma = gamma
        self._value = None

    def act(self, observation):
        values = self.network(observation)
        self._value = values.max(dim=1).values
        explore = torch.rand(len(observation)) < 0.2
        return torch.where(explore, torch.randint(0, values.shape[1], explore.shape), values.argmax(dim=1))

    def remember(self, observation, action, reward, following):
        self.memory.push(Transition(observation, action, reward, following, self._value))

    def learn(self):
        batch = self.memory.sample(2)
        observation = torch.cat([t.observation for t in batch])
        action = torch.cat([t.action for t in batch])
        reward = torch.cat([t.reward for t in batch])
        with torch.no_grad():
            ahead = self.network(torch.cat([t.following for t in batch])).max(dim=1).values
        chosen = self.network(observation).gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(chosen, reward + self.gamma * ahead)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
