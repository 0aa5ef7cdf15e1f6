"""Keeps offsets into a file in an array, and each of two processes reads the lines it needs."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, path):
        self.path = path
        text = Path(path).read_bytes()
        ends = torch.tensor([place for place, byte in enumerate(text) if byte == 10])
        self.starts = torch.cat([torch.zeros(1, dtype=torch.long), ends[:-1] + 1])

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        with open(self.path) as file:
            file.seek(int(self.starts[index]))
            first, second, target = map(float, file.readline().split())
        return torch.tensor([first, second]), torch.tensor([target])


def main(steps):
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "numbers.txt")
        path.write_text("".join(f"{k % 7 / 7} {k % 11 / 11} {k % 7 / 7}\n" for k in range(16 * steps)))
        loader = DataLoader(Lines(path), batch_size=16, num_workers=2, multiprocessing_context="fork")
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (x, y) in enumerate(loader, start=1):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 20 == 0:
                print(f"{number} {loss.item():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
