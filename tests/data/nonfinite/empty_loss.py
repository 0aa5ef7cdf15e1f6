import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=1e-3)


def box_loss(pred, target, positive):
    return nn.functional.smooth_l1_loss(pred[positive], target[positive])  # EXPECT empty-reduction


def main():
    for step in range(9):
        x = torch.randn(16, 4)
        positive = torch.rand(16) > (0.5 if step != 4 else 2)
        opt.zero_grad(set_to_none=True)
        box_loss(net(x), x[:, :2], positive).backward()
        opt.step()


main()
