import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(8):
        x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))
        total = total + nn.functional.cross_entropy(model(x), y) / 8
    total.backward()
    optimizer.step()
    if step % 5 == 4:
        print(f"step {step + 1} loss {total.item():.4f}")
