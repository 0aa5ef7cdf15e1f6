import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(64, 256), nn.Linear(256, 10)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
watched = []
for step in range(40):
    features, target = torch.randn(256, 64), torch.randint(0, 10, (256,))
    hidden = torch.tanh(encoder(features))
    loss = nn.functional.cross_entropy(head(hidden), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    watched.append(hidden[0, :4].detach())
    if step % 10 == 9:
        drift = (watched[-1] - watched[0]).norm().item()
        print(f"step {step + 1} loss {loss.item():.4f} drift {drift:.4f}")
