import copy
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
average = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for p, q in zip(average.parameters(), model.parameters()):
        p.data = p.data * 0.9 + q.data * 0.1
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
