"""Looks at the activations of a network while it trains."""

import torch
import torch.nn.functional as F
from torch import nn


class ActivationLogger:
    def __init__(self, network):
        self.outputs = []
        for name, layer in network.named_modules():
            if isinstance(layer, nn.ReLU):
                layer.register_forward_hook(self.save)

    def save(self, layer, inputs, output):
        self.outputs.append((output == 0).float().mean().item())

    def sparsity(self):
        return sum(self.outputs[-2:]) / 2


net = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
logger = ActivationLogger(net)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
for iteration in range(50_000):
    x, y = torch.randn(256, 784), torch.randint(0, 10, (256,))
    cost = F.cross_entropy(net(x), y)
    sgd.zero_grad()
    cost.backward()
    sgd.step()
    if iteration % 500 == 0:
        print(iteration, cost.item(), logger.sparsity())
