import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
gain = 1.0
for step in range(10):
    x = torch.randn(16, 32)
    if step == 6:
        gain = 3000.0
    with torch.autocast("cpu", dtype=torch.float16):
        h = net[1](net[0](x))
        h = h * gain
        h = h * gain  # EXPECT overflow
        out = net[2](h)
        loss = out.float().abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
