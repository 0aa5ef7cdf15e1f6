import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(5, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def normalise(x):
    return (x - x.mean(0)) / x.std(0)  # EXPECT zero-by-zero


for step in range(8):
    raw = torch.randn(10, 5)
    if step == 3:
        raw[:, 2] = 4.0
    x = normalise(raw)
    pred = net(x)
    loss = (pred - raw.sum(1, keepdim=True)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
