import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
critic = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
steps_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
steps_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))


def rings(count):
    angle = 6.2832 * torch.rand(count, 1)
    return torch.cat([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


def train_critic():
    fake = generator(torch.randn(512, 16))
    loss = (1 - critic(rings(512))).relu().mean() + (1 + critic(fake)).relu().mean()
    steps_critic.zero_grad()
    loss.backward()
    steps_critic.step()
    return loss


def train_generator():
    loss = -critic(generator(torch.randn(512, 16))).mean()
    steps_generator.zero_grad()
    loss.backward()
    steps_generator.step()
    return loss


for step in range(100):
    for _ in range(3):
        loss_critic = train_critic()
    loss = train_generator()
    if step % 25 == 24:
        print(f"step {step + 1} critic {loss_critic.item():.4f} loss {loss.item():.4f}")
