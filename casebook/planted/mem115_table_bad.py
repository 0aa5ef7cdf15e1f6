"""Rows of a click log, parsed once and kept."""

import csv

import torch
from torch.utils import data


class Clicks(data.Dataset):
    def __init__(self, path):
        self.rows = []
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                self.rows.append(row)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.tensor([float(row["age"]), float(row["price"])]), torch.tensor(float(row["clicked"]))


train_loader = data.DataLoader(Clicks("clicks.csv"), batch_size=1024, num_workers=4, shuffle=True)
