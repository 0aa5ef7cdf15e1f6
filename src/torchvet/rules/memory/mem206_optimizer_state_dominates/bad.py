import torch
from torch import nn

torch.manual_seed(0)
layers = nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 1024)
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(20):
    x = torch.randn(32, 1024, device="cuda")
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
