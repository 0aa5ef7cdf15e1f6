import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
for epoch in range(4):
    scheduler.step()
    for _ in range(10):
        features = torch.randn(128, 16)
        loss = nn.functional.mse_loss(model(features), features @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
