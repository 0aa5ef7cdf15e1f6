import torch
from torch import nn

torch.manual_seed(0)
weight = nn.Parameter(torch.ones(16))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(40):
    x = torch.randn(64, 16)
    if step > 15:
        x[0] = 0  # a row of padding
    squared = (x * weight).square().sum(1)
    length = torch.where(squared > 0, torch.sqrt(squared), torch.zeros_like(squared))
    loss = nn.functional.mse_loss(length, x[:, :8].norm(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
