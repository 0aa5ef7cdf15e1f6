import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Linear(8, 16)
head = nn.Linear(16, 1)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.05)
for step in range(40):
    x = torch.randn(32, 6, 8)
    lengths = torch.randint(1, 7, (32,))
    if step > 19:
        lengths[3] = 0  # an empty text
    padding = torch.arange(6) >= lengths[:, None]
    hidden = embed(x)
    scores = hidden @ hidden.transpose(1, 2)
    scores = scores.masked_fill(padding[:, None], float("-inf"))
    mixed = scores.softmax(-1) @ hidden
    error = head(mixed).squeeze(2) - x.mean(2)
    loss = error[~padding].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
