import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(5, 7)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
keep = torch.ones(7)
keep[3] = 0
for step in range(7):
    x = torch.randn(4, 5)
    p = torch.softmax(net(x) * (1 if step != 3 else 4000), -1)
    logp = p.log()  # EXPECT log-of-zero
    entropy = -(p * logp).sum(-1)
    loss = (entropy * 1.0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
