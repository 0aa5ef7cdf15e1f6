"""CIFAR-100 on all GPUs by torch.multiprocessing.spawn."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, models, transforms


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)


def prepare(rank, world_size, batch_size, root):
    tf = transforms.Compose([transforms.RandomCrop(32, 4), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    dataset = datasets.CIFAR100(root, train=True, transform=tf)
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    return DataLoader(
        dataset, batch_size=batch_size, sampler=sampler, num_workers=4, pin_memory=True, persistent_workers=True
    )


def worker(rank, world_size, args):
    setup(rank, world_size, args.port)
    loader = prepare(rank, world_size, args.batch_size, args.root)
    model = DistributedDataParallel(models.resnet18(num_classes=100).to(rank), device_ids=[rank])
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * world_size, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        model.train()
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(rank, non_blocking=True), y.to(rank, non_blocking=True)
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        scheduler.step()
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")
            torch.save(model.module.state_dict(), "cifar.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", default="data")
    ap.add_argument("--port", type=int, default=12355)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=200)
    n = torch.cuda.device_count()
    mp.spawn(worker, args=(n, ap.parse_args()), nprocs=n, join=True)
