import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[layer for _ in range(40) for layer in (nn.Linear(16, 16), nn.Tanh())])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for step in range(200):
    x = torch.rand(32, 16)
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1} loss {loss.item():.4f}")
