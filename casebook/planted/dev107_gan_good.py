import torch
import torch.nn as nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

latent, size, batch = 64, 28 * 28, 100
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5], [0.5])])
loader = DataLoader(datasets.MNIST("data", transform=transform, download=True), batch, shuffle=True, drop_last=True)

G = nn.Sequential(nn.Linear(latent, 256), nn.LeakyReLU(0.2), nn.Linear(256, size), nn.Tanh()).to(device)
D = nn.Sequential(nn.Linear(size, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)).to(device)
criterion = nn.BCEWithLogitsLoss()
g_optimizer = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))

for epoch in range(20):
    for i, (photos, _) in enumerate(loader):
        photos = photos.view(photos.size(0), -1).to(device)
        real_labels = torch.ones(photos.size(0), 1, device=device)
        fake_labels = torch.zeros(photos.size(0), 1, device=device)

        noise = torch.randn(photos.size(0), latent, device=device)
        fakes = G(noise)
        d_loss = criterion(D(photos), real_labels) + criterion(D(fakes.detach()), fake_labels)
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()

        g_loss = criterion(D(fakes), real_labels)
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()

        if i % 200 == 0:
            print(f"[{epoch}/{i}] d {d_loss.item():.3f} g {g_loss.item():.3f}")
