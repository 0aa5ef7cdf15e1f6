import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    mixing = torch.full((16, 16), 0.1)
    loss = nn.functional.mse_loss(model(x), x @ mixing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
