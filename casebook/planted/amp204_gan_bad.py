"""GAN whose two steps share one autocast region."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784)).cuda()
critic = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)).cuda()
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-4)
optimizer_d = torch.optim.Adam(critic.parameters(), lr=1e-4)


def train_pair(images):
    noise = torch.randn(images.size(0), 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        fake = generator(noise)
        loss_d = critic(fake.detach()).mean() - critic(images).mean()
        optimizer_d.zero_grad()
        loss_d.backward()
        optimizer_d.step()
        loss_g = -critic(fake).mean()
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()
    return loss_d.item(), loss_g.item()
