import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    x = torch.randn(64, 8)
    x[0] = 0 if step > 20 else 1
    half = x.half()
    unit = half / (half.norm(dim=1, keepdim=True) + 1e-8)
    loss = nn.functional.mse_loss(model(unit.float()), unit.float().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
