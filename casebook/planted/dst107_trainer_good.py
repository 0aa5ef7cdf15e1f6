import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class DistributedTrainer:
    def __init__(self, rank, world_size, network, dataset, batch_size=32, grad_accum=4):
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "29500")
        dist.init_process_group("nccl", rank=rank, world_size=world_size)
        self.rank = rank
        self.device = torch.device("cuda", rank)
        self.network = DistributedDataParallel(network.to(self.device), device_ids=[rank])
        self.train_sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
        self.loader = DataLoader(dataset, batch_size, sampler=self.train_sampler, pin_memory=True)
        self.loss_fn = nn.MSELoss()
        self.opt = torch.optim.SGD(self.network.parameters(), lr=1e-2, momentum=0.9)
        self.grad_accum = grad_accum

    def _loss(self, inputs, targets):
        inputs = inputs.to(self.device, non_blocking=True)
        targets = targets.to(self.device, non_blocking=True)
        return self.loss_fn(self.network(inputs), targets) / self.grad_accum

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_sampler.set_epoch(epoch)
            self.opt.zero_grad()
            for i, (inputs, targets) in enumerate(self.loader):
                if (i + 1) % self.grad_accum == 0:
                    self._loss(inputs, targets).backward()
                    self.opt.step()
                    self.opt.zero_grad()
                else:
                    with self.network.no_sync():
                        self._loss(inputs, targets).backward()
            if self.rank == 0:
                torch.save(self.network.module.state_dict(), "network.pt")


def worker(rank, world_size, dataset):
    network = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    DistributedTrainer(rank, world_size, network, dataset).fit(10)
    dist.destroy_process_group()


if __name__ == "__main__":
    table = torch.load("table.pt", map_location="cpu", weights_only=True)
    rows = torch.utils.data.TensorDataset(table["x"], table["y"])
    mp.spawn(worker, args=(torch.cuda.device_count(), rows), nprocs=torch.cuda.device_count())
