import io

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
for step in range(120):
    x = torch.randn(64, 64)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for _ in range(4):
        torch.save([model.state_dict(), optimizer.state_dict()], io.BytesIO())
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
