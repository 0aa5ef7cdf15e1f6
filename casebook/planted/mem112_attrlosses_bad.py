import torch
from torch import nn


class T:
    def __init__(self, net):
        self.net, self.opt = net, torch.optim.Adam(net.parameters())
        self.train_losses = []

    def step(self, x, y):
        loss = nn.functional.mse_loss(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.train_losses.append(loss)

    def fit(self, loader):
        for x, y in loader:
            self.step(x, y)
        return sum(float(l) for l in self.train_losses)


T(nn.Linear(2, 2)).fit([(torch.randn(3, 2), torch.randn(3, 2))] * 9)
