import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
for step in range(40):
    real, fake = torch.randn(256, 128) + 1, torch.randn(256, 128)
    mixed = torch.lerp(real, fake, torch.rand(256, 1)).requires_grad_()
    critic(mixed).sum().backward(create_graph=True)
    slope = mixed.grad
    penalty = (slope.norm(dim=1) - 1).square().mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
