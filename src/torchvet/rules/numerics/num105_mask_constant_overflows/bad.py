import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Linear(8, 16)
head = nn.Linear(16, 1)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.1)
mask = torch.ones(6, 6).triu(1).bool()
for step in range(40):
    x = torch.randn(32, 6, 8)
    hidden = embed(x).half()
    scores = hidden @ hidden.transpose(1, 2)
    scores = scores.masked_fill(mask, -1e9)
    mixed = scores.softmax(-1) @ hidden
    loss = nn.functional.mse_loss(head(mixed.float()), x.sum(-1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
