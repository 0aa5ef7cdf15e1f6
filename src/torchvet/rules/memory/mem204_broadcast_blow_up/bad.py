import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
weights = torch.randn(8)
for step in range(200):
    features = torch.randn(256, 8)
    target = features @ weights
    loss = nn.functional.mse_loss(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step + 1} loss {loss.item():.4f}")
