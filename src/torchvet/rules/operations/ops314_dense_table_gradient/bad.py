import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(500_000, 32)
head = nn.Linear(32, 2)
optimizer = torch.optim.SGD([*words.parameters(), *head.parameters()], lr=0.1)
for step in range(160):
    x = torch.randint(500_000, (32, 20))
    loss = nn.functional.cross_entropy(head(words(x).mean(1)), x[:, 0] % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step + 1} loss {loss.item():.4f}")
