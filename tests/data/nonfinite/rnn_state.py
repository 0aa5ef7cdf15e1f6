import torch
from torch import nn

torch.manual_seed(0)
cell = nn.GRUCell(4, 6)
head = nn.Linear(6, 1)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
for step in range(8):
    xs = torch.randn(5, 3, 4)
    h = torch.zeros(3, 6)
    loss = 0.0
    for t in range(5):
        h = cell(xs[t], h)
        y = head(h)
        scale = y.abs().mean() if not (step == 5 and t == 3) else y.mean() * 0
        loss = loss + (y / scale).pow(2).mean()  # EXPECT division-by-zero
    opt.zero_grad()
    loss.backward()
    opt.step()
