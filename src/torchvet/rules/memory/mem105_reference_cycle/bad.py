import torch
from torch import nn


class Node:
    def __init__(self, state, parent=None):
        self.state = state
        self.parent = parent
        self.children = []

    def expand(self, dynamics):
        self.children.append(Node(torch.tanh(dynamics(self.state)), parent=self))
        return self.children[-1]


def plan(dynamics, state):
    root = Node(state)
    with torch.no_grad():
        leaf = root.expand(dynamics).expand(dynamics)
    return leaf.state.max(1, keepdim=True).values


torch.manual_seed(0)
dynamics, value = nn.Linear(256, 256), nn.Linear(256, 1)
optimizer = torch.optim.SGD(value.parameters(), lr=0.1)
for step in range(40):
    state = torch.randn(256, 256)
    loss = nn.functional.mse_loss(value(state), plan(dynamics, state))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
