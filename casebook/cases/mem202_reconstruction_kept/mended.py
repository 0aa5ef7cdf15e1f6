"""Trains an autoencoder on a GPU and looks at how sure its reconstructions are."""

import argparse

import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


class Autoencoder(nn.Module):
    def __init__(self, pixels=4096, code=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(pixels, code), nn.ReLU())
        self.decode = nn.Linear(code, pixels)

    def forward(self, images):
        return self.decode(self.encode(images))


def images_of(count):
    for _ in range(count):
        yield torch.rand(512, 4096, device="cuda")


def main():
    args = arguments()
    torch.manual_seed(0)
    model = Autoencoder().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sure = torch.zeros((), device="cuda")
    for step, images in enumerate(images_of(args.steps), start=1):
        logits = model(images)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reconstruction = logits.detach().sigmoid()
        sure += (reconstruction - 0.5).abs().mean()
        del reconstruction
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} sure {sure.item() / step:.4f}")


if __name__ == "__main__":
    main()
