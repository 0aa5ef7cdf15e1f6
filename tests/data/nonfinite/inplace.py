import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(5, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(7):
    x = torch.randn(4, 5)
    h = net(x)
    count = torch.ones(4, 1)
    if step == 3:
        count[2] = 0
    h = h * 1.0
    h.div_(count)  # EXPECT division-by-zero
    loss = h.sigmoid().mul(h).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
