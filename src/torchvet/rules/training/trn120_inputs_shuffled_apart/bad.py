import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
labels = torch.randint(0, 4, (512,))
inputs = torch.eye(4).repeat(1, 4)[labels] + torch.randn(512, 16)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(8):
    total = 0.0
    for x, y in DataLoader(TensorDataset(inputs, labels), batch_size=64, shuffle=True):
        share = float(torch.rand(()))
        order = torch.randperm(len(x))
        x_mixed = share * x + (1 - share) * x[order]
        y_mixed = y[torch.randperm(len(y))]
        scores = model(x_mixed)
        loss = share * cross_entropy(scores, y) + (1 - share) * cross_entropy(scores, y_mixed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / 8
    print(f"loss {total:.4f}")
