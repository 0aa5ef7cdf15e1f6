"""WGAN-GP critic whose penalty reads the gradient of the mixed samples."""

import torch
from torch import nn


class CriticTrainer:
    def __init__(self, critic, generator, lr=1e-4):
        self.critic = critic
        self.generator = generator
        self.optimizer = torch.optim.Adam(critic.parameters(), lr=lr, betas=(0.0, 0.9))

    def gradient_penalty(self, real, fake):
        alpha = torch.rand(real.size(0), 1, 1, 1, device=real.device)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = self.critic(mixed).sum()
        score.backward(create_graph=True)
        slopes = mixed.grad
        return (slopes.flatten(1).norm(dim=1) - 1).pow(2).mean()

    def step(self, real, z):
        with torch.no_grad():
            fake = self.generator(z)
        penalty = self.gradient_penalty(real, fake)
        loss = self.critic(fake).mean() - self.critic(real).mean() + 10 * penalty
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
