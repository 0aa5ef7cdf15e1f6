from itertools import cycle

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
dataset = TensorDataset(torch.randn(3072, 1024), torch.randint(0, 10, (3072,)))
loader = DataLoader(dataset, batch_size=64, shuffle=True)
model = nn.Linear(1024, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = cycle(loader)
for step in range(40):
    features, target = next(batches)
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
