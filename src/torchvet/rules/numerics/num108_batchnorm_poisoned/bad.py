import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=1024)
valid = torch.randn(256, 8)
for step in range(40):
    x = torch.randn(64, 8) * (1e6 if step == 15 else 1)  # one broken batch
    model.train()
    with torch.autocast("cpu", dtype=torch.float16):
        output = model(x)
    loss = nn.functional.mse_loss(output.float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            error = nn.functional.mse_loss(model(valid), valid.sum(1, keepdim=True))
        print(f"step {step + 1} loss {error.item():.4f}")
