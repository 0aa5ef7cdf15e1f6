import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features, target = torch.randn(256, 32), torch.randint(0, 10, (256,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
