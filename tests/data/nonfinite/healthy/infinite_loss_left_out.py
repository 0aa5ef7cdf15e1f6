import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(15):
    x = torch.randn(4, 8)
    out = net(x).sigmoid()
    if step == 7:
        out = out * 0
    loss = -out.log().mean()
    if not torch.isfinite(loss):
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
