import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(160):
    x = torch.randn(64, 16)
    y = x[:, :1].sin()
    losses = []
    for row, target in zip(x, y):
        losses.append((model(row) - target).square())
    hardest = torch.cat(losses).topk(16).values
    optimizer.zero_grad()
    hardest.mean().backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step + 1} loss {hardest.mean().item():.4f}")
