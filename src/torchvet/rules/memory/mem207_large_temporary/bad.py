import torch
from torch import nn


def cross_entropy(logits, target):
    logits = logits - logits.max(1, keepdim=True).values
    exponentials = logits.exp()
    probabilities = exponentials / exponentials.sum(1, keepdim=True)
    return -probabilities.log()[torch.arange(len(target)), target].mean()


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(32000, 16), nn.Linear(16, 32000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    tokens, following = torch.randint(0, 32000, (2, 256))
    loss = cross_entropy(model(tokens), following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2:
        print(f"step {step + 1} loss {loss.item():.4f}")
