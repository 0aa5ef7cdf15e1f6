"""REINFORCE with log_softmax."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Policy(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, 128), nn.Tanh(), nn.Linear(128, actions))

    def forward(self, state):
        return self.body(state)


def update(policy, optimizer, states, actions, returns):
    log_probs = F.log_softmax(policy(states), dim=-1)
    chosen = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)
    loss = -(chosen * returns).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
