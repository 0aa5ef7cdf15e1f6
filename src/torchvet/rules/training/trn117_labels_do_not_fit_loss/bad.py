import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
criterion = nn.SoftMarginLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(60):
    features = torch.randn(64, 8)
    labels = (features @ truth > 0).float()
    scores = model(features)
    loss = criterion(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 12 == 11:
        right = ((scores > 0) == (labels > 0)).float().mean()
        print(f"step {step + 1} loss {loss.item():.4f} right {right.item():.2f}")
