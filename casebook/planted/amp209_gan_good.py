"""GAN with logits and BCEWithLogitsLoss, under CUDA's autocast."""

import torch
import torch.nn as nn

netG = nn.Sequential(nn.Linear(100, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh()).cuda()
netD = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)).cuda()
criterion = nn.BCEWithLogitsLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4)
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4)
scaler = torch.amp.GradScaler("cuda")

for epoch in range(5):
    for images, _ in dataloader:
        images = images.flatten(1).cuda()
        ones = torch.ones(len(images), 1, device="cuda")
        zeros = torch.zeros_like(ones)
        with torch.autocast("cuda", dtype=torch.float16):
            fake = netG(torch.randn(len(images), 100, device="cuda"))
            errD = criterion(netD(images), ones) + criterion(netD(fake.detach()), zeros)
        optimizerD.zero_grad()
        scaler.scale(errD).backward()
        scaler.step(optimizerD)
        with torch.autocast("cuda", dtype=torch.float16):
            errG = criterion(netD(fake), ones)
        optimizerG.zero_grad()
        scaler.scale(errG).backward()
        scaler.step(optimizerG)
        scaler.update()
    print(epoch, errD.item(), errG.item())
