"""Reviews as rows of token numbers, with one of two labels."""

import torch
from torch.utils.data import Dataset


class Reviews(Dataset):
    def __init__(self, count, length=12, vocabulary=64):
        generator = torch.Generator().manual_seed(5)
        self.labels = torch.randint(0, 2, (count,), generator=generator)
        self.tokens = torch.randint(2, vocabulary * 2 // 3, (count, length), generator=generator)
        self.tokens += self.labels[:, None] * vocabulary // 3
        self.tokens[:, -1] = 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.tokens[index], self.labels[index]
