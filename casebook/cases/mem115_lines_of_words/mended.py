"""Reads sentences with their mood from a file, by two processes."""

import argparse
import random
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GOOD, BAD, PLAIN = ("fine", "bright", "kind"), ("grim", "cold", "bitter"), [f"word{k}" for k in range(60)]
INDEX = {word: number for number, word in enumerate([*GOOD, *BAD, *PLAIN])}


def write(path, count):
    draw = random.Random(0)
    with open(path, "w") as file:
        for _ in range(count):
            mood = draw.randrange(2)
            words = draw.choices(PLAIN, k=10) + draw.choices((BAD, GOOD)[mood], k=2)
            print(mood, *words, file=file)


class Sentences(Dataset):
    def __init__(self, path):
        with open(path) as file:
            lines = file.readlines()
        self.moods = torch.tensor([int(line.split()[0]) for line in lines])
        self.words = torch.tensor([[INDEX[word] for word in line.split()[1:]] for line in lines])

    def __len__(self):
        return len(self.moods)

    def __getitem__(self, index):
        return self.words[index], self.moods[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sentences.txt")
        write(path, 16 * args.steps)
        loader = DataLoader(Sentences(path), batch_size=16, num_workers=2, multiprocessing_context="fork")
        model = nn.Sequential(nn.EmbeddingBag(len(INDEX), 16), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
        for number, (words, mood) in enumerate(loader, start=1):
            loss = nn.functional.cross_entropy(model(words), mood)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 20 == 0:
                print(f"{number} {loss.item():.4f}")


if __name__ == "__main__":
    main()
