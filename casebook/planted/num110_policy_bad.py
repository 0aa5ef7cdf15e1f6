"""REINFORCE with the logarithm of a softmax."""

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
    probs = F.softmax(policy(states), dim=-1)
    log_probs = torch.log(probs)
    chosen = log_probs.gather(1, actions.unsqueeze(1)).squeeze(1)
    loss = -(chosen * returns).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
