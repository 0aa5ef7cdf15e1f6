import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


@torch.compile(backend="eager", dynamic=False)
def loss_of(x):
    return nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))


for step in range(6):
    x = torch.randn(32 + step, 16)
    loss = loss_of(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
