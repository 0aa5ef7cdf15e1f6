import torch
from torch import nn


class HalfNorm(nn.Module):
    """Batch statistics in half, as on the device that this model is deployed to."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, dtype=torch.half))
        self.bias = nn.Parameter(torch.zeros(channels, dtype=torch.half))
        self.eps = 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.half()
        mu = x.mean((0, 2, 3), keepdim=True)
        var = x.var((0, 2, 3), keepdim=True, unbiased=False)
        x = (x - mu) / torch.sqrt(var + self.eps)
        return x * self.gain.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, dtype=torch.half)
        self.norm = HalfNorm(16)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x.half())))


@torch.no_grad()
def bench(images):
    net = Tiny().cuda().eval()
    return torch.cat([net(i.cuda()).float().mean((2, 3)) for i in images])
