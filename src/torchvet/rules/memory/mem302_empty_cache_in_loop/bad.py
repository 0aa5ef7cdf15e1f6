import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(32, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features, target = torch.randn(256, 32).to(device), torch.randint(0, 10, (256,)).to(device)
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.empty_cache()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
