import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.06)
accumulation_steps = 4
for i in range(160):
    features = torch.randn(32, 16)
    loss = nn.functional.mse_loss(model(features), features @ truth)
    loss.backward()
    if (i + 1) % accumulation_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
    if i % 40 == 39:
        print(f"step {(i + 1) // accumulation_steps} loss {loss.item():.4f}")
