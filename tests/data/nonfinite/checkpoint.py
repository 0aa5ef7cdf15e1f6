import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x, bad):
        h = self.fc(x)
        if bad:
            h = h - h.detach()
        return x + torch.sqrt(h.square().sum(-1, keepdim=True))  # EXPECT root-gradient-at-zero


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8) for _ in range(3)])

    def forward(self, x, bad):
        for i, b in enumerate(self.blocks):
            x = checkpoint(b, x, bad and i == 1, use_reentrant=False)
        return x


torch.manual_seed(0)
net = Net()
opt = torch.optim.AdamW(net.parameters())
for step in range(8):
    x = torch.randn(4, 8)
    loss = net(x, step == 5).mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
