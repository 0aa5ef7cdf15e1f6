"""A tagger for sentences of all lengths. The corpus is sorted by length, so that a batch needs little padding."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

WORDS, TAGS = 400, 12


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 64, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(64, 4, dim_feedforward=128, dropout=0.0, batch_first=True)
        self.tags = nn.Linear(64, TAGS)

    def forward(self, tokens):
        return self.tags(self.layer(self.words(tokens)))


def corpus(count):
    generator = torch.Generator().manual_seed(11)
    lengths = torch.randint(4, 400, (count,), generator=generator).tolist()
    return sorted((torch.randint(1, WORDS, (n,), generator=generator) for n in lengths), key=len)


def shard(sentences, rank, world):
    share = len(sentences) // world
    return sentences[rank * share : (rank + 1) * share]


def batches(sentences, size, steps):
    for step in range(steps):
        start = step * size % (len(sentences) - size + 1)
        tokens = pad_sequence(sentences[start : start + size], batch_first=True)
        yield step, tokens, torch.where(tokens > 0, tokens % TAGS, -100)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    mine = shard(corpus(960), rank, dist.get_world_size())
    for step, tokens, tags in batches(mine, 8, args.steps):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 19:
            print(f"step {step + 1} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
