import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
params = model.parameters()
optimizer = torch.optim.SGD(params, lr=0.1)
x = torch.randn(64, 8)
y = 10 * x.sum(1, keepdim=True)
for step in range(8):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 10.0)
    optimizer.step()
    print(f"loss {loss.item():.4f}")
