import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
truth = torch.randn(16, 4)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(40):
    pixels = torch.randint(0, 256, (128, 16))
    labels = ((pixels / 127.5 - 1) @ truth).argmax(1)
    features = pixels.float()
    loss = F.cross_entropy(model(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 8 == 7:
        print(f"step {step + 1} loss {loss.item():.4f}")
