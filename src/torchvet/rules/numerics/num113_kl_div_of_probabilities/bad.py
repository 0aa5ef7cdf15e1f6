import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
truth = torch.randn(16, 4)
teacher = nn.Linear(16, 4)
with torch.no_grad():
    teacher.weight.copy_(truth.T)
student = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
for step in range(60):
    features = torch.randn(64, 16)
    with torch.no_grad():
        target = (teacher(features) / 4).softmax(1)
    predicted = student(features).softmax(1)
    loss = F.kl_div(predicted, target, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 12 == 11:
        distance = (student(features).softmax(1) - target).abs().sum(1).mean()
        print(f"step {step + 1} loss {loss.item():.4f} distance {distance.item():.3f}")
