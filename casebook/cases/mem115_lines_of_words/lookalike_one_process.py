"""Keeps its samples as Python objects, and reads them in the process that trains."""

import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, text):
        self.rows = [json.loads(line) for line in text.splitlines()]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return torch.tensor(row["x"]), torch.tensor([row["y"]])


def main(steps):
    torch.manual_seed(0)
    text = "\n".join(json.dumps({"x": [k % 7 / 7, k % 11 / 11], "y": k % 7 / 7}) for k in range(16 * steps))
    loader = DataLoader(Samples(text), batch_size=16)
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
