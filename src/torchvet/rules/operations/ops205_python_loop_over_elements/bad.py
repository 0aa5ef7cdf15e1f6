import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(32, 16)
    target = torch.zeros(32, 1)
    for i in range(x.size(0)):
        for j in range(x.size(1)):
            target[i, 0] += x[i, j]
    loss = nn.functional.mse_loss(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
