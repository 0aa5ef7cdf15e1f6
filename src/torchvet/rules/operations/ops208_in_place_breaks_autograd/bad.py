import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(16, 64)
head = nn.Linear(64, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    hidden = torch.tanh(encoder(x))
    hidden += 0.1 * torch.randn_like(hidden)
    loss = nn.functional.mse_loss(head(hidden), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
