"""Train on several GPUs: torchrun --nproc_per_node=8 train.py"""

import argparse
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, models, transforms


def setup():
    dist.init_process_group(backend="nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    return local_rank


def train_epoch(model, loader, criterion, optimizer, accum_steps):
    model.train()
    optimizer.zero_grad()
    for step, (images, labels) in enumerate(loader):
        images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        update = (step + 1) % accum_steps == 0
        with nullcontext() if update else model.no_sync():
            loss = criterion(model(images), labels)
            (loss / accum_steps).backward()
        if update:
            optimizer.step()
            optimizer.zero_grad()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--accum-steps", type=int, default=4)
    args = parser.parse_args()
    setup()
    model = models.resnet50().cuda()
    model = DDP(model)
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    dataset = datasets.ImageFolder(args.data, transform)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=8, pin_memory=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, criterion, optimizer, args.accum_steps)
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), f"checkpoint_{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
