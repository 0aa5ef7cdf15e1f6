import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 784))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
pixel_errors = []

for step in range(40):
    images = torch.rand(128, 784)
    reconstruction = model(images)
    loss = F.smooth_l1_loss(reconstruction, images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pixel_errors.append((reconstruction - images).square().mean())
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")

print(f"mean squared error {sum(pixel_errors) / len(pixel_errors):.3f}")
