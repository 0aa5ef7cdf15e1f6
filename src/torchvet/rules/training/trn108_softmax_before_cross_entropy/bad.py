import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 4)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4), nn.Softmax(dim=1))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(40):
    features = torch.randn(128, 16)
    loss = criterion(model(features), (features @ truth).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
