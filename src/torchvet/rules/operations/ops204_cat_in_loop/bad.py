import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)
inputs = torch.empty(0, 16)
for shard in range(20):
    inputs = torch.cat([inputs, torch.randn(32, 16)])
targets = inputs @ truth
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
