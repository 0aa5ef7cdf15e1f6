import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
criterion = nn.BCELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(40):
    x = torch.randn(64, 16)
    y = (x.sum(1, keepdim=True) > 0).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(torch.sigmoid(model(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
