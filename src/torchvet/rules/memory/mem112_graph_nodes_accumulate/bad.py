import torch
from torch import nn

torch.manual_seed(0)
layers = [layer for _ in range(40) for layer in (nn.Linear(32, 32), nn.Tanh())]
model = nn.Sequential(*layers, nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(40):
    features, target = torch.randn(32, 32), torch.randint(0, 10, (32,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss)
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} mean {sum(losses) / len(losses):.3f}")
