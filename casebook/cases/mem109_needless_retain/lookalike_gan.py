"""A GAN on a ring of points: the fake batch serves both backward passes."""

import argparse

import torch
from torch import nn


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 96), nn.LeakyReLU(0.2), nn.Linear(96, 96), nn.LeakyReLU(0.2), nn.Linear(96, outputs)
    )


def ring(count):
    angle = torch.rand(count) * 6.283
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


class Gan:
    def __init__(self):
        self.generator, self.critic = mlp(4, 2), mlp(2, 1)
        self.for_generator = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.for_critic = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.judge = nn.BCEWithLogitsLoss()

    def step(self, real):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = self.generator(torch.randn(len(real), 4))
        self.for_critic.zero_grad()
        critic_loss = self.judge(self.critic(real), ones) + self.judge(self.critic(fake.detach()), zeros)
        critic_loss.backward()
        self.for_critic.step()
        self.for_generator.zero_grad()
        generator_loss = self.judge(self.critic(fake), ones)
        generator_loss.backward()
        self.for_generator.step()
        return critic_loss.item(), generator_loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    gan = Gan()
    for step in range(1, args.steps + 1):
        losses = gan.step(ring(128))
        if step % 10 == 0:
            print(step, *(f"{loss:.4f}" for loss in losses))
