"""Crops of spectrograms, drawn by the data set's own generator."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __init__(self, spectrograms, labels, width=64, seed=0):
        self.spectrograms, self.labels = spectrograms, labels
        self.width = width
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.spectrograms)

    def _crop(self, whole):
        start = self.rng.integers(0, whole.shape[-1] - self.width)
        return whole[..., start : start + self.width]

    def __getitem__(self, index):
        return self._crop(self.spectrograms[index]), self.labels[index]


def fit(model, spectrograms, labels, epochs):
    loader = DataLoader(Crops(spectrograms, labels), batch_size=32, shuffle=True, num_workers=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for crops, kinds in loader:
            loss = nn.functional.cross_entropy(model(crops), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
