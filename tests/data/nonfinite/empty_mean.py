import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)


def loss_fn(pred, target, keep):
    return ((pred - target) ** 2)[keep].mean()  # EXPECT empty-reduction


def main():
    for step in range(9):
        x = torch.randn(16, 4)
        y = torch.randn(16, 1)
        keep = torch.rand(16, 1) > (0.5 if step != 4 else 2)
        opt.zero_grad(set_to_none=True)
        loss_fn(net(x), y, keep).backward()
        opt.step()


main()
