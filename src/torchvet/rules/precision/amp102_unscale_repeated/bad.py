import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu")
for step in range(80):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
    scaler.scale(loss / 2).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if step % 2 == 1:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
