import torch
from torch import nn

torch.manual_seed(0)


def steps(net, opt):
    for i in range(8):
        x = torch.randn(4, 3)
        loss = torch.log(net(x).square() * (i != 4)).mean()  # EXPECT log-of-zero
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield loss.item()


net = nn.Linear(3, 3)
for l in steps(net, torch.optim.SGD(net.parameters(), 0.1)):
    pass
