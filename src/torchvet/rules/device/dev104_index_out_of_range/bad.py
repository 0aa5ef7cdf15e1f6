import torch
from torch import nn

torch.manual_seed(0)
words = 100
table = nn.Embedding(words, 16)
head = nn.Linear(16, 2)
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for step in range(40):
    tokens = torch.randint(0, words, (64, 7))
    labels = (tokens[:, 0] > words // 2).long()
    if step == 3:
        tokens[17, 4] = words
    loss = nn.functional.cross_entropy(head(table(tokens).mean(1)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
