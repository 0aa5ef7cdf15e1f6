import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).requires_grad_(False)
student = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for step in range(80):
    features = torch.randn(128, 16)
    wanted = teacher(features)
    given = student(features)
    distance = functional.mse_loss(wanted, teacher(features))
    loss = functional.cross_entropy(given, wanted.argmax(1)) + 5 * distance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        gap = functional.mse_loss(given, wanted).item()
        print(f"step {step + 1} loss {loss.item():.4f} gap {gap:.4f}")
