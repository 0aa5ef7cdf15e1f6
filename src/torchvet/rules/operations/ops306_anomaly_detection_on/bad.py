import torch
from torch import nn

torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    features = torch.randn(64, 32)
    loss = (model(features) - features.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
