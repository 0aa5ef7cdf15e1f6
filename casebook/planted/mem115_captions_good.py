"""Captions with their image features, read from one large JSON file."""

import json

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, path, features):
        with open(path) as file:
            annotations = json.load(file)["annotations"]
        self.images = np.array([entry["image_id"] for entry in annotations])
        self.tokens = np.array([entry["tokens"] for entry in annotations])
        self.features = np.load(features, mmap_mode="r")

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        features = self.features[self.images[index]]
        return torch.from_numpy(features.copy()), torch.from_numpy(self.tokens[index])


def loaders(path, features):
    dataset = Captions(path, features)
    return DataLoader(dataset, batch_size=64, shuffle=True, num_workers=8, pin_memory=True)
