import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(50):
    x = torch.randn(3000, 512).cuda()
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
