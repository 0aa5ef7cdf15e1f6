import torch
from torch import nn

torch.manual_seed(0)
a, b = nn.Linear(8, 8), nn.Linear(8, 8)
oa, ob = torch.optim.Adam(a.parameters()), torch.optim.Adam(b.parameters())
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for i in range(20):
    x = torch.randn(4, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        ya = a(x)
        yb = b(ya.detach())
        la = ya.float().square().mean()
        w = yb.float() * (0 if i > 8 else 1)
        lb = (w.square().sum(1) ** 0.25).mean()  # EXPECT power-gradient-at-zero
    oa.zero_grad()
    ob.zero_grad()
    scaler.scale(la).backward()
    scaler.scale(lb).backward()
    scaler.step(oa)
    scaler.step(ob)
    scaler.update()
