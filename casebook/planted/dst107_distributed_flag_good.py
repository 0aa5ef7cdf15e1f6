"""ImageNet training in the style of the reference scripts."""

import argparse
import datetime
import os
import time

import torch
import torch.utils.data
import torchvision
import utils
from presets import train_preset
from torch import nn


def init_distributed_mode(args):
    args.distributed = "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if not args.distributed:
        return
    args.gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(args.gpu)
    torch.distributed.init_process_group(backend="nccl", init_method="env://")


def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args):
    model.train()
    logger = utils.MetricLogger(delimiter="  ")
    for i, (image, target) in enumerate(logger.log_every(data_loader, args.print_freq, f"Epoch: [{epoch}]")):
        image, target = image.to(device, non_blocking=True), target.to(device, non_blocking=True)
        loss = criterion(model(image), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0:
            logger.update(loss=loss.item())


def main(args):
    init_distributed_mode(args)
    device = torch.device("cuda")
    dataset = torchvision.datasets.ImageFolder(os.path.join(args.data_path, "train"), train_preset())
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(dataset)
    else:
        train_sampler = torch.utils.data.RandomSampler(dataset)
    data_loader = torch.utils.data.DataLoader(
        dataset, batch_size=args.batch_size, sampler=train_sampler, num_workers=args.workers, pin_memory=True
    )
    model = torchvision.models.get_model(args.model, num_classes=len(dataset.classes)).to(device)
    model_without_ddp = model
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        model_without_ddp = model.module
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    start_time = time.time()
    for epoch in range(args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args)
        lr_scheduler.step()
        utils.save_on_master({"model": model_without_ddp.state_dict(), "epoch": epoch}, args.output)
    print("Training time", datetime.timedelta(seconds=int(time.time() - start_time)))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--data-path", default="/datasets/imagenet")
    p.add_argument("--model", default="resnet50")
    p.add_argument("-b", "--batch-size", default=32, type=int)
    p.add_argument("-j", "--workers", default=16, type=int)
    p.add_argument("--epochs", default=90, type=int)
    p.add_argument("--lr", default=0.1, type=float)
    p.add_argument("--print-freq", default=10, type=int)
    p.add_argument("--output", default="checkpoint.pth")
    main(p.parse_args())
