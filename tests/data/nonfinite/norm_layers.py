import torch
from torch import nn


class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.g = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.g * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))  # EXPECT division-by-zero


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), RMS(8), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(8):
    x = torch.randn(5, 4)
    if i == 4:
        with torch.no_grad():
            net[0].bias.fill_(-1e3)
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 2, (5,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
