import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64, momentum=0.99), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
truth, held = torch.randn(16, 1), torch.randn(256, 16)
for step in range(120):
    model.train()
    features = torch.randn(16, 16)
    loss = nn.functional.mse_loss(model(features), features @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad():
            error = nn.functional.mse_loss(model(held), held @ truth)
        print(f"step {step + 1} held-out loss {error.item():.4f}")
