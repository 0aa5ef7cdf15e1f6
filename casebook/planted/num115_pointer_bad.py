"""A summary of a padded text, weighted by what a query finds in it."""

import torch
from torch import nn


class Summary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(width))
        self.project = nn.Linear(width, width)

    def forward(self, words, padding):
        found = torch.softmax(self.project(words) @ self.query, dim=1)
        found = found.masked_fill(padding, float("-inf"))
        return torch.bmm(found.unsqueeze(1), words).squeeze(1)


def fit(batches):
    summary, head = Summary(64), nn.Linear(64, 5)
    optimizer = torch.optim.AdamW([*summary.parameters(), *head.parameters()])
    for words, padding, label in batches:
        loss = nn.functional.cross_entropy(head(summary(words, padding)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
