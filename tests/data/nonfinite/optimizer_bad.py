import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 8).half()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)  # SAID
for step in range(5):
    x = torch.randn(4, 8).half()
    x[:, 3] = 0
    loss = net(x).float().square().mean()  # EXPECT bad-parameter
    opt.zero_grad()
    loss.backward()
    opt.step()
