import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features = torch.randn(128, 16)
    loss = nn.functional.mse_loss(model(features), features @ truth)
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
