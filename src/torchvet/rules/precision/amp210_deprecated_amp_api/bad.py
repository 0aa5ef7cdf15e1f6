import torch
from torch import nn
from torch.cpu.amp import GradScaler, autocast

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scaler = GradScaler()
for step in range(40):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    with autocast(True, dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
