"""A variational autoencoder whose loss is put together of two functions."""

import torch
from torch import nn
from torch.nn import functional as F


class Autoencoder(nn.Module):
    def __init__(self, width: int = 784, latent: int = 16) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 256), nn.ReLU(), nn.Linear(256, width))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def divergence(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    return 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum()


def train(model, loader, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for x, _ in loader:
            logits, mean, log_variance = model(x.flatten(1))
            reconstruction = F.binary_cross_entropy_with_logits(logits, x.flatten(1))
            loss = reconstruction + divergence(mean, log_variance)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
