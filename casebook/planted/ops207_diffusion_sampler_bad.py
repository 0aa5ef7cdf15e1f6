"""DDIM sampling of images from a trained noise predictor."""

import argparse

import torch
from diffusers import UNet2DModel
from torchvision.utils import save_image


def schedule(steps: int, device) -> torch.Tensor:
    betas = torch.linspace(1e-4, 0.02, 1000, device=device)
    return torch.cumprod(1.0 - betas, dim=0)[torch.linspace(999, 0, steps, device=device).long()]


@torch.no_grad()
def preprocess(frames: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    out = frames.float()
    out = out / 255.0
    out = out - mean
    out = out / std
    out = out.clamp(-3.0, 3.0)
    return out


@torch.no_grad()
def sample(model, shape, steps, device):
    x = torch.randn(shape, device=device)
    alphas = schedule(steps, device)
    for i in range(steps - 1):
        a, a_next = alphas[i], alphas[i + 1]
        t = torch.full((shape[0],), 999 - i * 999 // steps, device=device)
        eps = model(x, t).sample
        x0 = (x - (1 - a).sqrt() * eps) / a.sqrt()
        x = a_next.sqrt() * x0 + (1 - a_next).sqrt() * eps
    x = x * 0.5
    x = x + 0.5
    x = x.clamp(0.0, 1.0)
    return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = UNet2DModel.from_pretrained(args.model).to(device).eval()
    images = sample(model, (args.count, 3, args.size, args.size), args.steps, device)
    save_image(images.cpu(), "samples.png", nrow=8)


if __name__ == "__main__":
    main()
