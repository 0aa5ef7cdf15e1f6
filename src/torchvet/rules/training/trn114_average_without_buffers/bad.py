import copy

import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1))
average = copy.deepcopy(model).requires_grad_(False).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(120):
    features = 3 + 2 * torch.randn(128, 16)
    loss = nn.functional.mse_loss(model(features), features @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters()):
            mine.lerp_(theirs, 0.1)
        error = nn.functional.mse_loss(average(features), features @ truth)
    if step % 30 == 29:
        print(f"step {step + 1} average's loss {error.item():.4f}")
