"""Attention over padded sentences."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, words, padding):
        scores = torch.matmul(self.query(words), self.key(words).transpose(1, 2)) / math.sqrt(words.shape[-1])
        scores.masked_fill(padding[:, None, :], float("-inf"))
        return torch.matmul(scores.softmax(-1), self.value(words))


def fit(batches):
    attention, head = Attention(32), nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*attention.parameters(), *head.parameters()])
    for words, padding, label in batches:
        loss = nn.functional.cross_entropy(head(attention(words, padding).mean(1)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
