import torch
from torch import nn


class Adversary:
    def __init__(self, net):
        self.net = net

    def parameters(self):
        return self.net.parameters()

    def update(self, x, y):
        optimizer = self.optimizer
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()


def main(loader):
    adv = Adversary(nn.Linear(20, 2))
    adv.optimizer = torch.optim.Adam(adv.parameters(), lr=1e-3)
    for x, y in loader:
        adv.update(x, y)
