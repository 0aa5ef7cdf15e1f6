import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 4, bias=False)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(9):
    x = torch.randn(6, 4)
    if step == 5:
        x[1] = 0
    z = net(x)
    safe = torch.where(z != 0, z.sin() / z, torch.ones_like(z))  # EXPECT where-branch
    loss = safe.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
