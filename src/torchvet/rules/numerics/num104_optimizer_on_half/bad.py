import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 1).half()
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x), x[:, :8].relu().sum(1, keepdim=True))
    loss.backward()
    model.weight.grad[:, 8:] = 0  # as for units that are off
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
