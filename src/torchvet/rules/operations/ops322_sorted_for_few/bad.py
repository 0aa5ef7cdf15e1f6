import torch
from torch import nn

torch.manual_seed(0)
users, items = nn.Embedding(400, 24), nn.Embedding(6000, 24)
parameters = [*users.parameters(), *items.parameters()]
optimizer = torch.optim.SGD(parameters, lr=20.0)
liked = torch.randint(0, 6000, (400, 4))
for step in range(160):
    rows = torch.randint(0, 400, (48,))
    scores = users(rows) @ items.weight.T
    loss = nn.functional.cross_entropy(scores, liked[rows, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = scores.detach().argsort(dim=1, descending=True)[:, :10]
    hits = (best[:, :, None] == liked[rows, None]).any(2).float().mean()
    if step % 40 == 39:
        print(f"step {step + 1} loss {loss.item():.4f} hits {hits:.3f}")
