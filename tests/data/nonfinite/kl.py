import torch
from torch import nn

torch.manual_seed(0)
enc = nn.Linear(6, 8)
dec = nn.Linear(4, 6)
params = list(enc.parameters()) + list(dec.parameters())
opt = torch.optim.Adam(params, lr=1e-3)


class VAE:
    def __call__(self, x, shift):
        mu, logvar = enc(x).chunk(2, dim=1)
        logvar = logvar + shift
        std = torch.exp(logvar)  # EXPECT overflow
        z = mu + std * torch.randn_like(std)
        return dec(z), mu, logvar, std


vae = VAE()


def elbo(recon, x, mu, logvar, std):
    rec = (recon - x).square().sum()
    kl = -0.5 * (1 + logvar - mu.square() - std).sum()
    return rec + kl


for step in range(8):
    x = torch.randn(10, 6)
    recon, mu, logvar, std = vae(x, 0 if step != 4 else 100)
    total = elbo(recon, x, mu, logvar, std)
    opt.zero_grad()
    total.backward()
    opt.step()
