"""A thread prepares batches ahead of the training loop, at most three of them."""

import argparse
import queue
import threading

import torch
from torch import nn


def produce(out, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(256, 96, generator=generator)
        out.put((x, x.roll(1, dims=1)))
    out.put(None)


def batches(steps):
    ahead = queue.Queue(maxsize=3)
    worker = threading.Thread(target=produce, args=(ahead, steps, 7))
    worker.start()
    while (item := ahead.get()) is not None:
        yield item
    worker.join()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
torch.manual_seed(0)
model = nn.Linear(96, 96)
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
for number, (x, y) in enumerate(batches(args.steps), start=1):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number % 10 == 0:
        print(number, f"{loss.item():.5f}")
