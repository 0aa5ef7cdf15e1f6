import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64))
head = nn.Linear(64, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = body(x)
        with torch.autocast("cpu", enabled=False):
            loss = nn.functional.mse_loss(head(hidden.float()), x.sum(1, keepdim=True))
        loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.5f}")
