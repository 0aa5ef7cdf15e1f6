import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
total = torch.zeros((), dtype=torch.bfloat16)
for step in range(200):
    x = torch.randn(64, 16)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach()
    if step % 50 == 49:
        print(f"step {step + 1} mean loss {total.item() / (step + 1):.4f}")
