import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(40):
    x = torch.randn(64, 16)
    y = x[:, :4].argmax(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
        with torch.autocast("cpu", enabled=False):
            loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
