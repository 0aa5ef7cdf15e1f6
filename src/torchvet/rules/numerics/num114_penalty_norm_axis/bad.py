import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(16 * 64, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3)
for step in range(80):
    real = 0.5 + 0.5 * torch.rand(32, 1, 8, 8)
    fake = torch.randn(32, 1, 8, 8)
    part = torch.rand(32, 1, 1, 1)
    mixed = (part * real + (1 - part) * fake).requires_grad_(True)
    score = critic(mixed)
    (gradient,) = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True)
    penalty = ((gradient.norm(2, dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        norm = gradient.flatten(1).norm(dim=1).mean().item()
        print(f"step {step + 1} loss {loss.item():.4f} norm {norm:.2f}")
