"""A tabular autoencoder for synthetic records, in the manner of a plugin with its own fit loop."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def table(rows):
    age = torch.randint(18, 90, (rows, 1)).float()
    income = torch.randn(rows, 1).mul(0.8).exp() * 30000 + 500 * age
    hours = 40 + 8 * torch.randn(rows, 1)
    return torch.cat([age, income, hours], dim=1)


class Encoder(nn.Module):
    def __init__(self, features, hidden, latent):
        super().__init__()
        self.shared = nn.Sequential(
            nn.Linear(features, hidden), nn.LeakyReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU()
        )
        self.mu = nn.Linear(hidden, latent)
        self.logvar = nn.Linear(hidden, latent)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * torch.randn_like(std)

    def forward(self, x):
        h = self.shared(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-30.0, 20.0)
        return self.reparameterize(mu, logvar), mu, logvar


class TabularVAE(nn.Module):
    def __init__(self, features, hidden=64, latent=4, lr=1e-3):
        super().__init__()
        self.encoder = Encoder(features, hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.LeakyReLU(), nn.Linear(hidden, features))
        self.optimizer = torch.optim.Adam(self.parameters(), lr=lr)

    def loss(self, x):
        z, mu, logvar = self.encoder(x)
        reconstruction = nn.functional.mse_loss(self.decoder(z), x)
        divergence = -0.5 * torch.mean(1 + logvar - mu.pow(2) - logvar.exp())
        return reconstruction + divergence

    def fit(self, x, steps):
        loader = DataLoader(TensorDataset(x), batch_size=128, shuffle=True)
        step = 0
        while step < steps:
            for (batch,) in loader:
                self.optimizer.zero_grad()
                loss = self.loss(batch)
                loss.backward()
                self.optimizer.step()
                step += 1
                if step % 20 == 0:
                    print(f"[{step}/{steps}] loss: {loss.item():.4g}")
                if step == steps:
                    break
        return self


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = table(2048)
    x = (x - x.mean(0)) / x.std(0)
    TabularVAE(x.shape[1]).fit(x, args.steps)
