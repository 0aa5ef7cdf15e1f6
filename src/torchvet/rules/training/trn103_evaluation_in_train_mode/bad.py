import torch
from torch import nn

torch.manual_seed(0)
data = torch.randn(256, 16)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, data.sum(1, True)), batch_size=64)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(4):
    model.train()
    for _ in range(5):
        for features, target in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(features), target).backward()
            optimizer.step()
    torch.manual_seed(epoch)
    total = 0.0
    with torch.no_grad():
        for features, target in loader:
            total += nn.functional.mse_loss(model(features), target).item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
