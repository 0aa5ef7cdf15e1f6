import torch
from torch import nn


class Pix:
    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Linear(4, 4)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    k = 1

    def set_input(self, x, y):
        self.x, self.y = x, y

    def forward(self):
        self.fake = self.net(self.x)
        self.ratio = self.fake.abs() / (self.y.abs().sum(1, keepdim=True) * self.k)  # EXPECT division-by-zero

    def backward_G(self):
        self.loss_G = self.ratio.mean() + (self.fake - self.y).abs().mean()
        self.loss_G.backward()

    def optimize(self):
        self.forward()
        self.opt.zero_grad()
        self.backward_G()
        self.opt.step()


m = Pix()
for i in range(6):
    m.k = int(i != 3)
    m.set_input(torch.randn(3, 4), torch.randn(3, 4))
    m.optimize()
