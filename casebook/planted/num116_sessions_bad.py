"""Kinds of visits to a site, told apart by how long a reader stays on each page."""

import torch
from torch import nn
from torch.utils.data import Dataset


class Visits(Dataset):
    def __init__(self, frame):
        opened = torch.tensor([[page.timestamp() for page in visit] for visit in frame["opened"]], dtype=torch.float32)
        self.stays = torch.log1p(opened[:, 1:] - opened[:, :-1]).float()
        self.kinds = torch.tensor(frame["kind"].to_numpy())

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        return self.stays[index], self.kinds[index]


def fit(loader, pages):
    model = nn.Sequential(nn.Linear(pages - 1, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    for stays, kinds in loader:
        loss = nn.functional.cross_entropy(model(stays), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
