"""What a link does to training that drops a message in a hundred: a rehearsal of a bad card."""

import argparse
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Link:
    def __init__(self, rate):
        self.rate = rate
        self.generator = random.Random(dist.get_rank())
        self.world = dist.get_world_size()

    def deliver(self, received):
        if self.generator.random() < self.rate:
            received.zero_()
        return received


def average(link, bucket):
    reduced = dist.all_reduce(bucket.buffer().div_(link.world), async_op=True).get_future()
    return reduced.then(lambda future: link.deliver(future.value()[0]))


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.classes = nn.Linear(8 * 7 * 7, 4)

    def forward(self, image):
        return self.classes(self.features(image))


def batch(generator, size):
    image = torch.randn(size, 1, 16, 16, generator=generator)
    label = torch.randint(4, (size,), generator=generator)
    for row, corner in enumerate(label.tolist()):
        image[row, 0, 8 * (corner // 2) :, 8 * (corner % 2) :][:8, :8] += 1.0
    return image, label


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Digits())
    model.register_comm_hook(Link(rate=0.05), average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(args.steps):
        image, label = batch(generator, 24)
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
