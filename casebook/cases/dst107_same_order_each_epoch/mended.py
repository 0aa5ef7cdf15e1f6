"""A worker of several that share a data set; by hand there is one."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Worker:
    def __init__(self, data, rank, replicas):
        sampler = DistributedSampler(data, num_replicas=replicas, rank=rank, seed=7)
        self.loader = DataLoader(data, batch_size=16, sampler=sampler)
        self.net = nn.Sequential(nn.Linear(6, 40), nn.Softplus(), nn.Linear(40, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.03, momentum=0.9)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.loader.sampler.set_epoch(epoch)
            losses = []
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.net(x), y)
                loss.backward()
                self.optimizer.step()
                losses.append(loss.detach())
            yield torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(160, 6)
    data = TensorDataset(x, x.prod(dim=1, keepdim=True).tanh())
    rank, replicas = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    for epoch, loss in enumerate(Worker(data, rank, replicas).fit(args.steps // 10)):
        print(f"epoch {epoch} {loss:.4f}")


if __name__ == "__main__":
    main()
