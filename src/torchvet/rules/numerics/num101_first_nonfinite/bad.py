import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(32, 10)
    target = x.sum(1, keepdim=True)
    valid = torch.rand(32, 1) > 0.3
    if step == 19:
        valid[:] = False  # a batch of nothing but padding
    error = (model(x) - target).square() * valid
    loss = error.sum() / valid.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
