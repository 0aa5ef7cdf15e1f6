import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / math.sqrt(x.shape[-1])
        scores = scores.masked_fill(~mask[:, None, :], float("-inf"))
        weights = torch.softmax(scores, dim=-1)  # EXPECT masked-row
        return weights @ self.v(x)


torch.manual_seed(0)
net = Attention(8)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(4, 5, 8)
    lengths = torch.randint(1, 6, (4,))
    if step == 5:
        lengths[2] = 0
    mask = torch.arange(5)[None] < lengths[:, None]
    loss = net(x, mask).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
