"""A trainer for retrieval models, on one process or on several."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def unwrapped(model):
    return model.module if isinstance(model, DistributedDataParallel) else model


class Retriever(nn.Module):
    def __init__(self, words=300, width=48):
        super().__init__()
        self.words = nn.EmbeddingBag(words, width, mode="mean")
        self.project = nn.Sequential(nn.Linear(width, 96), nn.ReLU(), nn.Linear(96, 24))

    def encode(self, tokens):
        return nn.functional.normalize(self.project(self.words(tokens)), dim=1)

    def forward(self, queries, answers):
        return self.encode(queries), self.encode(answers)


class Trainer:
    def __init__(self, net, seed):
        self.model = net
        if dist.is_initialized():
            self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self, size=32):
        queries = torch.randint(300, (size, 12), generator=self.generator)
        answers = queries.clone()
        answers[:, ::3] = torch.randint(300, (size, 4), generator=self.generator)
        return queries, answers

    def contrast(self, net):
        queries, answers = (net.encode(tokens) for tokens in self.batch())
        return nn.functional.cross_entropy(queries @ answers.T * 15, torch.arange(len(queries)))

    def step(self):
        loss = self.contrast(unwrapped(self.model))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    trainer = Trainer(Retriever(), seed=dist.get_rank())
    for step in range(args.steps):
        loss = trainer.step()
        if dist.get_rank() == 0 and step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
