import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(60):
    length = 512 + 37 * step
    features = torch.randn(8, length, 512, device="cuda")
    loss = model(features).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        print(f"step {step + 1} loss {loss.item():.4f}")
