import torch
from torch import nn

torch.manual_seed(0)
axis = torch.linspace(-1, 1, 12)
x, y = torch.rand(2, 2048, 1, 1) * 1.4 - 0.7
blobs = torch.exp(-((axis[None, None] - x) ** 2 + (axis[None, :, None] - y) ** 2) / 0.1).flatten(1)
encoder = nn.Sequential(nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 8))
decoder = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 144))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)


def loss_of(restored, pictures, mean, logvar):
    reconstruction = nn.functional.mse_loss(restored, pictures)
    kl = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
    return reconstruction + kl


for step in range(600):
    pictures = blobs[torch.randint(0, 2048, (64,))]
    mean, logvar = encoder(pictures).chunk(2, dim=1)
    restored = decoder(mean + torch.randn_like(mean) * torch.exp(0.5 * logvar))
    loss = loss_of(restored, pictures, mean, logvar)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 99:
        error = nn.functional.mse_loss(decoder(encoder(blobs)[:, :4]), blobs)
        print(f"step {step + 1} loss {loss.item():.4f} error {error.item():.4f}")
