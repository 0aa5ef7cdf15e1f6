"""Word language model with a choice of recurrent networks; trained on a corpus that is written first."""

import argparse
import random
import tempfile
from pathlib import Path

import torch
from torch import nn


class Corpus:
    def __init__(self, path):
        words = path.read_text().split()
        self.dictionary = {word: i for i, word in enumerate(sorted(set(words)))}
        self.train = torch.tensor([self.dictionary[word] for word in words])


class RNNModel(nn.Module):
    def __init__(self, kind, ntoken, ninp=32, nhid=64, nlayers=2):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        if kind in ("LSTM", "GRU"):
            self.rnn = getattr(nn, kind)(ninp, nhid, nlayers)
        else:
            self.rnn = nn.RNN(ninp, nhid, nlayers, nonlinearity={"RNN_TANH": "tanh", "RNN_RELU": "relu"}[kind])
        self.decoder = nn.Linear(nhid, ntoken)

    def forward(self, tokens, hidden=None):
        output, hidden = self.rnn(self.encoder(tokens), hidden)
        return self.decoder(output), hidden


def batchify(data, size):
    rows = len(data) // size
    return data[: rows * size].view(size, rows).t().contiguous()


def write_corpus(path, words):
    rng = random.Random(13)
    successors = {i: [rng.randrange(50) for _ in range(3)] for i in range(50)}
    text, word = [], 0
    for _ in range(words):
        word = rng.choice(successors[word])
        text.append(f"w{word}")
    path.write_text(" ".join(text))


def train(model, source, args):
    lr, total = args.lr, 0.0
    for batch, i in enumerate(range(0, source.size(0) - 1 - args.bptt, args.bptt), start=1):
        data, targets = source[i : i + args.bptt], source[i + 1 : i + 1 + args.bptt]
        model.zero_grad()
        output, _ = model(data)
        loss = nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())
        loss.backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
        if batch % 10 == 0:
            print(f"| {batch:4d} batches | lr {lr:.2f} | loss {total / 10:.2f}")
            total = 0.0
        if batch == args.steps:
            break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--model", default="RNN_RELU")
    parser.add_argument("--lr", type=float, default=20)
    parser.add_argument("--bptt", type=int, default=35)
    args = parser.parse_args()
    torch.manual_seed(1111)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.txt")
        write_corpus(path, (args.steps + 2) * args.bptt * 20)
        corpus = Corpus(path)
    train(RNNModel(args.model, len(corpus.dictionary)), batchify(corpus.train, 20), args)


if __name__ == "__main__":
    main()
