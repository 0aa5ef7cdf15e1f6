import torch
import torch.nn as nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

latent_dim, image_size, n_epochs = 100, 32, 50
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(latent_dim, 256),
            nn.LeakyReLU(0.2),
            nn.Linear(256, 1024),
            nn.LeakyReLU(0.2),
            nn.Linear(1024, image_size * image_size),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.model(z).view(z.size(0), 1, image_size, image_size)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(image_size * image_size, 512),
            nn.LeakyReLU(0.2),
            nn.Linear(512, 1),
        )

    def forward(self, img):
        return self.model(img)


netG, netD = Generator().to(device), Discriminator().to(device)
adversarial_loss = nn.BCEWithLogitsLoss()
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
transform = transforms.Compose(
    [transforms.Resize(image_size), transforms.ToTensor(), transforms.Normalize([0.5], [0.5])]
)
dataloader = DataLoader(datasets.MNIST("data", download=True, transform=transform), batch_size=64, shuffle=True)

for epoch in range(n_epochs):
    for i, (real, _) in enumerate(dataloader):
        real = real.to(device)
        ones = torch.ones(real.size(0), 1, device=device)
        zeros = torch.zeros(real.size(0), 1, device=device)

        # Discriminator
        optimizerD.zero_grad()
        fake = netG(torch.randn(real.size(0), latent_dim, device=device))
        errD_real = adversarial_loss(netD(real), ones)
        errD_fake = adversarial_loss(netD(fake.detach()), zeros)
        errD = (errD_real + errD_fake) / 2
        errD.backward()
        optimizerD.step()

        # Generator
        optimizerG.zero_grad()
        errG = adversarial_loss(netD(fake), ones)
        errG.backward()
        optimizerG.step()

        if i % 200 == 0:
            print(f"[{epoch}/{n_epochs}] [{i}/{len(dataloader)}] D {errD.item():.4f} G {errG.item():.4f}")
