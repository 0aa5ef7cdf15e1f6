import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
x = torch.randn(96, 16)
y = x[:, :1] * x[:, 1:2]
for epoch in range(8):
    for rows in torch.randperm(96).split(24):
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    noise = torch.randn(8, 16, generator=torch.manual_seed(0))
    with torch.no_grad():
        model(noise)
    print(f"loss {loss.item():.4f}")
