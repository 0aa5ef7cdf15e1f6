import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(12, 2)
        self.hot = False

    def forward(self, x):
        h = self.body(x)
        z = self.head(h)
        if self.hot:
            z = torch.exp(z * 1000 + 100)  # EXPECT overflow
        return z


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.net = Net()
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.crit = nn.MSELoss()

    def batches(self):
        for i in range(12):
            self.net.hot = i == 6
            yield torch.randn(16, 6), torch.randn(16, 2)

    def train(self):
        for x, y in self.batches():
            self.step(x, y)

    def step(self, x, y):
        loss = self.crit(self.net(x), y)
        self.opt.zero_grad()
        self.backward(loss)
        self.opt.step()

    def backward(self, loss):
        loss.backward()


Trainer().train()
