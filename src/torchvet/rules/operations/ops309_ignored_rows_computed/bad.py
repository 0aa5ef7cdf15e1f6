import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(6000, 64)
body, head = nn.Linear(64, 64), nn.Linear(64, 6000)
optimizer = torch.optim.SGD([*words.parameters(), *body.parameters(), *head.parameters()], lr=0.1)
for step in range(320):
    x = torch.randint(6000, (512,))
    targets = x.masked_fill(torch.rand(512) > 0.15, -100)
    hidden = torch.tanh(body(words(x)))
    logits = head(hidden)
    loss = nn.functional.cross_entropy(logits, targets, ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 80 == 79:
        print(f"step {step + 1} loss {loss.item():.4f}")
