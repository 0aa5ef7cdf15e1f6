import torch
from torch import nn

torch.manual_seed(0)
features, head = nn.Linear(16, 48), nn.Linear(300, 1)
centers = nn.Parameter(torch.randn(300, 48))
optimizer = torch.optim.SGD([*features.parameters(), *head.parameters(), centers], lr=0.01)
for step in range(160):
    x = torch.randn(256, 16)
    rows = features(x)
    distances = (rows.unsqueeze(1) - centers.unsqueeze(0)).pow(2).sum(-1)
    loss = (head(torch.exp(-distances / 96)) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step + 1} loss {loss.item():.4f}")
