"""Captions with their image features, read from one large JSON file."""

import json

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, path, features):
        with open(path) as file:
            self.annotations = json.load(file)["annotations"]
        self.features = np.load(features, mmap_mode="r")

    def __len__(self):
        return len(self.annotations)

    def __getitem__(self, index):
        entry = self.annotations[index]
        return torch.from_numpy(self.features[entry["image_id"]].copy()), torch.tensor(entry["tokens"])


def loaders(path, features):
    dataset = Captions(path, features)
    return DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8, pin_memory=True)
