import torch
from torch import nn

torch.manual_seed(0)
weight = nn.Parameter(torch.randn(8, 32) / 8)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh())
optimizer = torch.optim.SGD([weight, *model.parameters()], lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    scores = torch.matmul(model(x), weight.t().contiguous())
    loss = nn.functional.mse_loss(scores, x[:, :8])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
