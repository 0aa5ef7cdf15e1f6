import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(80):
    positions = torch.arange(2048, dtype=torch.bfloat16)
    angles = positions.float() * 0.7
    waves = torch.stack([angles.sin(), angles.cos()], 1)
    target = torch.sin(torch.arange(2048) * 0.7).unsqueeze(1)
    loss = nn.functional.mse_loss(model(waves), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
