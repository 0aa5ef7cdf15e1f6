import torch
from torch import nn

torch.manual_seed(0)
query, key, value, head = (nn.Linear(16, 16) for _ in range(4))
parameters = [p for layer in (query, key, value, head) for p in layer.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.003)
for step in range(80):
    x = torch.randn(32, 10, 16)
    padding = torch.arange(10) >= torch.randint(4, 11, (32, 1))
    target = x.masked_fill(padding[..., None], 0.0).sum(1)
    scores = query(x) @ key(x).transpose(1, 2) / 4
    weights = scores.softmax(-1)
    weights = weights.masked_fill(padding[:, None, :], -1e4)
    loss = nn.functional.mse_loss(head(weights @ value(x)).sum(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
