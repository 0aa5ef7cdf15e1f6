"""Rows of a click log, parsed once and kept."""

import csv

import torch
from torch.utils import data


class Clicks(data.Dataset):
    def __init__(self, path):
        with open(path, newline="") as file:
            self.rows = torch.tensor(
                [[float(r["age"]), float(r["price"]), float(r["clicked"])] for r in csv.DictReader(file)]
            )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i, :2], self.rows[i, 2]


train_loader = data.DataLoader(Clicks("clicks.csv"), batch_size=1024, num_workers=4, shuffle=True)
