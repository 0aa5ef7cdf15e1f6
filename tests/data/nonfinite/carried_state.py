import torch
from torch import nn

torch.manual_seed(0)
rnn = nn.RNNCell(3, 5)
opt = torch.optim.SGD(rnn.parameters(), 0.1)
h = torch.zeros(2, 5)
for i in range(10):
    x = torch.randn(2, 3)
    h = rnn(x, h.detach())
    if i == 6:
        h = h / (h - h)  # EXPECT division-by-zero
    loss = h.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
