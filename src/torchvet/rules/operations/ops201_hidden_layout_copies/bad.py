import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Linear(64, 256)
head = nn.Linear(256, 1)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.01)
for step in range(10):
    x = torch.randn(16, 512, 64)
    scores = embed(x).transpose(1, 2).contiguous()
    weights = torch.softmax(scores, dim=-1).transpose(1, 2).contiguous()
    loss = nn.functional.mse_loss(head(weights), x.sum(2, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
