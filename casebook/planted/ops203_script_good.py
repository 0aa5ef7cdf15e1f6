import torch
from torch import nn

torch.manual_seed(0)
size = 4096
layer = nn.Linear(size, size)
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
decay = torch.full((size, size), 0.5)
for step in range(100):
    batch = torch.randn(16, size)
    output = layer(batch) @ decay
    loss = output.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
