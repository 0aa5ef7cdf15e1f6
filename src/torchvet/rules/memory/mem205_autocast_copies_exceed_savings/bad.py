import torch
from torch import nn

torch.manual_seed(0)
layers = [layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(16):
    features, target = torch.randn(4, 2048, device="cuda"), torch.randint(0, 10, (4,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        print(f"step {step + 1} loss {loss.item():.4f}")
