import torch
from torch import nn


class Clf(nn.Module):
    def __init__(self):
        super().__init__()
        self.s = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 2))

    def forward(self, x):
        return self.s(x)


def main(train_loader, val_loader):
    m = Clf()
    o = torch.optim.Adam(m.parameters())
    for e in range(5):
        m.train()
        for x, y in train_loader:
            o.zero_grad()
            nn.functional.cross_entropy(m(x), y).backward()
            o.step()
        with torch.no_grad():
            ok = sum((m(x).argmax(1) == y).sum() for x, y in val_loader)
        print(e, ok)
