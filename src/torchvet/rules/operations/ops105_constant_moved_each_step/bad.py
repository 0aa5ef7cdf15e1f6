import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
weights = torch.tensor([1.0, 2.0, 2.0, 1.0])
for step in range(40):
    x = torch.randn(64, 16, device=device)
    target = x[:, :4].argmax(1)
    loss = nn.functional.cross_entropy(model(x), target, weight=weights.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
