import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
truth = torch.randn(16, 4)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))
for layer in model:
    if isinstance(layer, nn.Linear):
        nn.init.constant_(layer.weight, 0.1)
        nn.init.zeros_(layer.bias)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(60):
    features = torch.randn(128, 16)
    loss = F.cross_entropy(model(features), (features @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 12 == 11:
        print(f"step {step + 1} loss {loss.item():.4f}")
