import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 8)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(12):
    x = torch.randn(4, 8)
    p = torch.relu(net(x))
    with torch.no_grad():
        report = torch.where(p > 0, p * p.log(), torch.zeros_like(p)).sum()
        ratio = torch.nan_to_num(p / p)
    loss = (p - ratio).square().mean() + 0 * report
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), float("inf"))
    opt.step()
