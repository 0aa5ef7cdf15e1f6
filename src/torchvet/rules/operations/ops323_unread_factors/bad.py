import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Sequential(nn.Linear(32, 160), nn.ReLU()), nn.Linear(160, 4)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
for step in range(160):
    x = torch.randn(900, 32)
    features = encoder(x)
    loss = nn.functional.cross_entropy(head(features), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    _, s, _ = torch.linalg.svd(features.detach())
    rank = (s > 0.01 * s[0]).sum().item()
    if step % 40 == 39:
        print(f"step {step + 1} loss {loss.item():.4f} rank {rank}")
