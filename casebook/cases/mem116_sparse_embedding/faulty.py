"""Skip-gram with a sparse embedding and its own optimizer beside a dense projection."""

import argparse

import torch
from torch import nn


class SkipGram(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.centre = nn.Embedding(words, width, sparse=True)
        self.project = nn.Linear(width, 50)

    def forward(self, words):
        return self.project(self.centre(words))


class Training:
    def __init__(self, model):
        self.model = model
        self.sparse = torch.optim.SGD(model.centre.parameters(), lr=0.05)
        self.dense = torch.optim.Adam(model.project.parameters(), lr=1e-2)

    def step(self, words, contexts):
        self.dense.zero_grad()
        loss = nn.functional.cross_entropy(self.model(words), contexts)
        loss.backward()
        self.sparse.step()
        self.dense.step()
        return loss.item()


def corpus(size, words):
    centre = torch.randint(0, words, (size,))
    return centre, (centre * 7 + torch.randint(0, 3, (size,))) % 50


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    training = Training(SkipGram(2000, 64))
    for step in range(args.steps):
        loss = training.step(*corpus(512, 2000))
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss:.4f}")


if __name__ == "__main__":
    main()
