import torch
from torch import nn

torch.manual_seed(0)
truth = torch.randn(16, 1)
held_out = torch.randn(512, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.12)
best_loss, best_state = float("inf"), None
for step in range(160):
    features = torch.randn(16, 16)
    loss = nn.functional.mse_loss(model(features), features @ truth)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        held_out_loss = nn.functional.mse_loss(model(held_out), held_out @ truth).item()
    if held_out_loss < best_loss:
        best_loss = held_out_loss
        best_state = model.state_dict()
    if step % 40 == 39:
        print(f"step {step + 1} best loss {best_loss:.4f}")
model.load_state_dict(best_state)
print(f"restored loss {nn.functional.mse_loss(model(held_out), held_out @ truth).item():.4f}")
