import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu")
for step in range(40):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    scaled = scaler.scale(loss)
    scaled.backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 9:
        print(f"step {step + 1} loss {scaled.item():.4f}")
