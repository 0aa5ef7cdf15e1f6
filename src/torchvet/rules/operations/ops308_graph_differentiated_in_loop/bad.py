import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 100))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(400):
    x = torch.randn(16, requires_grad=True)
    y = model(x)
    rows = [torch.autograd.grad(y[i], x, retain_graph=True)[0] for i in range(len(y))]
    jacobian = torch.stack(rows)
    weights = jacobian.norm(dim=1)
    loss = (weights - 1).square().mean() + y.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        print(f"step {step + 1} loss {loss.item():.4f}")
