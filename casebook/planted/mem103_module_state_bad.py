"""A recurrent policy that keeps its state on the module between updates."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.rnn = nn.GRU(observations, 128, batch_first=True)
        self.head = nn.Linear(128, actions)
        self.memory = torch.zeros(1, 16, 128)

    def forward(self, observed):
        features, self.memory = self.rnn(observed, self.memory)
        return self.head(features)


policy = Policy(24, 6)
adam = torch.optim.Adam(policy.parameters(), lr=2.5e-4)

for update in range(1_000):
    observed, advantage = torch.randn(16, 32, 24), torch.randn(16, 32)
    chosen = torch.randint(0, 6, (16, 32, 1))
    log_probability = policy(observed).log_softmax(-1).gather(-1, chosen).squeeze(-1)
    objective = -(log_probability * advantage).mean()
    adam.zero_grad()
    objective.backward()
    adam.step()
    if update % 50 == 0:
        print(update, objective.item())
