import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
table = nn.Embedding(20, 16, padding_idx=0)
layer = nn.GRU(16, 32, batch_first=True)
head = nn.Linear(32, 6)
parameters = [*table.parameters(), *layer.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.01)
for step in range(100):
    tokens = torch.randint(2, 20, (32, 60))
    lengths = torch.randint(3, 61, (32,))
    rows = torch.arange(32)
    labels = tokens[rows, lengths - 1] % 6
    tokens[torch.arange(60) >= lengths[:, None]] = 0
    result, _ = layer(table(tokens))
    loss = F.cross_entropy(head(result[:, -1]), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
