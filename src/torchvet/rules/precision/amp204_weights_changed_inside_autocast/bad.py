import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    target = x.sum(1, keepdim=True)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        after = nn.functional.mse_loss(model(x), target)
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} after the step loss {after.item():.4f}")
