# Memory efficient swish, following what many repositories carry around
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function


class SwishImplementation(Function):
    @staticmethod
    def forward(ctx, i, beta=1.0):
        result = i * torch.sigmoid(beta * i)
        ctx.beta = beta
        ctx.save_for_backward(i)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (i,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * i)
        return grad_output * (s * (1 + ctx.beta * i * (1 - s))), None


class MemoryEfficientSwish(nn.Module):
    def forward(self, x):
        return SwishImplementation.apply(x)


class MBConv(nn.Module):
    def __init__(self, c, expand=4):
        super().__init__()
        self.pw = nn.Conv2d(c, c * expand, 1, bias=False)
        self.dw = nn.Conv2d(c * expand, c * expand, 3, padding=1, groups=c * expand, bias=False)
        self.out = nn.Conv2d(c * expand, c, 1, bias=False)
        self.act = MemoryEfficientSwish()

    def forward(self, x):
        return x + self.out(self.act(self.dw(self.act(self.pw(x)))))


def main():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        *[MBConv(16) for _ in range(3)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    for it in range(20):
        x, y = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    print(loss.item())


if __name__ == "__main__":
    main()
