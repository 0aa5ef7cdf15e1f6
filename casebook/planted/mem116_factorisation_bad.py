"""Matrix factorisation with sparse embeddings."""

import torch
from torch import nn


class Factors(nn.Module):
    def __init__(self, users, items, size=64):
        super().__init__()
        self.users = nn.Embedding(users, size, sparse=True)
        self.items = nn.Embedding(items, size, sparse=True)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(-1)


def fit(ratings, users, items, epochs=10):
    model = Factors(users, items)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        for user, item, rating in ratings:
            loss = nn.functional.mse_loss(model(user, item), rating)
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
    return model
