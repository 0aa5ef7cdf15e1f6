import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu")
for step in range(60):
    x = torch.randn(64, 16)
    if step >= 20:
        x[:, 3] = 1.0  # a sensor that has failed reads the same everywhere
    target = x.sum(1, keepdim=True)
    x = (x - x.mean(0)) / x.std(0)
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
