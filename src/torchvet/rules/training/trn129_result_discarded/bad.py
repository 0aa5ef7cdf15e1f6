import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 8)
    padding = torch.rand(64, 8) < 0.25
    scores = model(x)
    scores.masked_fill(padding, float("-inf"))
    target = x.masked_fill(padding, -9).argmax(1)
    loss = nn.functional.cross_entropy(scores, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
