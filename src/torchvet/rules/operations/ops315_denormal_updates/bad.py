import torch
from torch import nn

torch.manual_seed(0)
inputs, head = nn.Linear(2048, 512), nn.Linear(512, 1)
weights = [*inputs.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(weights, lr=1e-4, betas=(0.6, 0.6), foreach=True)
for step in range(400):
    x = torch.randn(8, 2048)
    if step >= 20:
        x[:, 200:] = 0
    loss = (head(torch.relu(inputs(x))) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        print(f"step {step + 1} loss {loss.item():.4f}")
