import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1024))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(40):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", torch.float16):
        loss = 1e-5 * nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True).expand(64, 1024))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {1e5 * loss.item():.4f}")
