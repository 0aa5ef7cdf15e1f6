import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
X = torch.randn(20, 4)
Y = torch.randn(20, 1)
for step in range(6):

    def closure():
        opt.zero_grad()
        pred = net(X)
        err = (pred - Y) * (0 if step == 4 else 1)
        loss = torch.log(err.abs()).mean()  # EXPECT log-of-zero
        loss.backward()
        return loss

    opt.step(closure)
