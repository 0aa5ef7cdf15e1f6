import torch
from torch import nn

torch.manual_seed(0)
items = nn.Embedding(10_000, 64, sparse=True)
optimizer = torch.optim.SGD(items.parameters(), lr=0.1)
for step in range(40):
    viewed, bought = torch.randint(0, 10_000, (2, 256))
    score = (items(viewed) * items(bought)).sum(1)
    loss = nn.functional.softplus(-score).mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
