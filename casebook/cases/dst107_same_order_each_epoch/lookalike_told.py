"""A callback tells the sampler which epoch it is."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Reshuffle:
    def __init__(self, loader):
        self.loader = loader

    def on_epoch(self, epoch):
        if isinstance(self.loader.sampler, DistributedSampler):
            self.loader.sampler.set_epoch(epoch)


def fit(net, loader, epochs, callbacks):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for epoch in range(epochs):
        for callback in callbacks:
            callback.on_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} {loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(160, 6)
    data = TensorDataset(x, x.sum(dim=1, keepdim=True).tanh())
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data, num_replicas=1, rank=0))
    fit(nn.Linear(6, 1), loader, args.steps // 10, [Reshuffle(loader)])
