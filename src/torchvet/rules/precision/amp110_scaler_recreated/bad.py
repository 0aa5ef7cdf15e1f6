import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(5):
    scaler = torch.amp.GradScaler("cpu")
    for step in range(10):
        x = torch.randn(64, 16)
        with torch.autocast("cpu", torch.float16):
            loss = (model(x).float() - x.sum(1, keepdim=True)).pow(2).sum()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(f"epoch {epoch} scale {scaler.get_scale():.0f} loss {loss.item():.4f}")
