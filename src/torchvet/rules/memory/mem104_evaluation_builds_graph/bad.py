import torch
from torch import nn


def evaluate(model, batches):
    model.eval()
    total = 0.0
    for features, target in batches:
        total += nn.functional.cross_entropy(model(features), target).item()
    model.train()
    return total / len(batches)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
validation = [(torch.randn(512, 32), torch.randint(0, 10, (512,))) for _ in range(10)]
for step in range(40):
    features, target = torch.randn(64, 32), torch.randint(0, 10, (64,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} validation {evaluate(model, validation):.4f}")
