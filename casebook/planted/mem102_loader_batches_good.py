"""Word vectors; the script remembers every batch that went by in order to look at the hardest ones later."""

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

pairs = TensorDataset(torch.randint(0, 50_000, (4_000_000,)), torch.randint(0, 50_000, (4_000_000,)))
loader = DataLoader(pairs, batch_size=8192, shuffle=True)
embedding = nn.Embedding(50_000, 128)
output = nn.Linear(128, 50_000)
optimizer = optim.SGD([*embedding.parameters(), *output.parameters()], lr=0.1)
visited = []

for epoch in range(20):
    for center, context in loader:
        loss = nn.functional.cross_entropy(output(embedding(center)), context)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        visited.append((loss.item(), len(center)))
    print(epoch, sorted(entry[0] for entry in visited)[-5:])
