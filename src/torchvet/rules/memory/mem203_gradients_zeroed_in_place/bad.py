import torch
from torch import nn

torch.manual_seed(0)
blocks = [layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))]
model = nn.Sequential(*blocks, nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features, target = torch.randn(128, 256), torch.randint(0, 10, (128,))
    optimizer.zero_grad(set_to_none=False)
    loss = nn.functional.cross_entropy(model(features), target)
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
