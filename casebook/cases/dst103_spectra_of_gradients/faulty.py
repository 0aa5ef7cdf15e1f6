"""Trains an autoencoder on four processes. One of them follows the spectra of the gradients for a paper's figure."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SPECTRA_ON = 2


class SpectrumWatch:
    def __init__(self, net):
        self.spectra = {}
        for name, parameter in net.named_parameters():
            if parameter.ndim == 2:
                parameter.register_hook(self.watch(name))

    def watch(self, name):
        def hook(grad):
            self.spectra[name] = torch.linalg.svdvals(grad)[:3].tolist()

        return hook


def autoencoder(width):
    return nn.Sequential(
        nn.Linear(width, 320), nn.SiLU(), nn.Linear(320, 24), nn.Linear(24, 320), nn.SiLU(), nn.Linear(320, width)
    )


def batch(generator, size, width):
    hidden = torch.randn(size, 8, generator=generator)
    return torch.sin(hidden @ torch.ones(8, width) * torch.arange(1, width + 1) / width)


def train(steps, width=384):
    rank = dist.get_rank()
    net = autoencoder(width)
    watch = SpectrumWatch(net) if rank == SPECTRA_ON else None
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(100 + rank)
    for step in range(steps):
        x = batch(generator, 16, width)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")
    return watch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    train(args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
