import torch
import torch.nn as nn
from torch.utils.data import DataLoader


class Critic(nn.Module):
    def __init__(self, dim=784):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))

    def forward(self, x):
        return self.net(x.flatten(1))


class Generator(nn.Module):
    def __init__(self, latent=64, dim=784):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(latent, 512), nn.ReLU(), nn.Linear(512, dim), nn.Tanh())

    def forward(self, z):
        return self.net(z).view(-1, 1, 28, 28)


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(real.size(0), 1, 1, 1, device=real.device)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    grad = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
    return ((grad.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


def train(dataset, epochs: int = 50):
    loader = DataLoader(dataset, 128, shuffle=True, num_workers=4, pin_memory=True, drop_last=True)
    critic, generator = Critic().cuda(), Generator()
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
    for epoch in range(epochs):
        for i, (real, _) in enumerate(loader):
            real = real.cuda(non_blocking=True)
            z = torch.randn(real.size(0), 64, device="cuda")
            fake = generator(z)
            loss_c = (
                critic(fake.detach()).mean() - critic(real).mean() + 10 * gradient_penalty(critic, real, fake.detach())
            )
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
            if i % 5 == 0:
                loss_g = -critic(generator(z)).mean()
                opt_g.zero_grad()
                loss_g.backward()
                opt_g.step()
