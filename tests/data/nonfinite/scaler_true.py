import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(25):
    x = torch.randn(8, 16)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        y = net(x)
        loss = y.square().mean()
        if step > 8:
            e = y.float() - y.float().detach()
            loss = loss + e.norm(dim=-1).mean() + torch.sqrt(e.square().sum(-1)).mean()  # EXPECT root-gradient-at-zero
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
