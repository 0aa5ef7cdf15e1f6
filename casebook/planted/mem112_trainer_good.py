"""A trainer that keeps its losses for the plot at the end."""

import torch
import torch.nn.functional as F


class Runner:
    def __init__(self, network, train_loader):
        self.network = network
        self.train_loader = train_loader
        self.opt = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        self.losses = []

    def fit(self, epochs):
        for epoch in range(epochs):
            for x, y in self.train_loader:
                self.opt.zero_grad()
                prediction = self.network(x)
                loss = F.cross_entropy(prediction, y)
                loss.backward()
                self.opt.step()
                self.losses.append(loss.item())
            print(epoch, f"{self.losses[-1]:.4f}")
