import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
sizes = [8, 8, 8, 8, 1, 8, 8]
for n in sizes:
    x = torch.randn(n, 4)
    z = net(x)
    z = (z - z.mean(0)) / (z.std(0) + 1e-5)  # EXPECT single-sample
    loss = (z**3).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
