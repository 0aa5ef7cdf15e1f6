"""Denoising: the test function is called once an epoch; in the healthy version its caller switches gradients off."""

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, noisy):
        return noisy - self.layers(noisy)


def test(denoiser, images):
    denoiser.eval()
    psnr = 0.0
    for clean in images:
        restored = denoiser(clean + 0.1 * torch.randn_like(clean))
        psnr += -10 * torch.log10((restored - clean).square().mean()).item()
    denoiser.train()
    return psnr / len(images)


def main(train_images, test_images):
    denoiser = Denoiser()
    optimizer = torch.optim.Adam(denoiser.parameters(), lr=1e-3)
    for epoch in range(20):
        for clean in train_images:
            loss = (denoiser(clean + 0.1 * torch.randn_like(clean)) - clean).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = test(denoiser, test_images)
        print(f"epoch {epoch} psnr {score:.2f}")


if __name__ == "__main__":
    main([torch.rand(8, 1, 64, 64) for _ in range(200)], [torch.rand(8, 1, 64, 64) for _ in range(20)])
