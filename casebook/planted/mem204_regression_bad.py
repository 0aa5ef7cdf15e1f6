"""House prices from a table."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(nn.Module):
    def __init__(self, inputs, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(0.1))
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(self.body(x))


def run_epoch(model, loader, criterion, optimizer):
    model.train()
    for rows, prices in loader:
        predicted = model(rows)
        loss = criterion(predicted, prices)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    rows = torch.randn(5000, 12)
    prices = rows[:, 0] * 3 + rows[:, 1]
    loader = DataLoader(TensorDataset(rows, prices), batch_size=64, shuffle=True)
    model = Regressor(12)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(20):
        run_epoch(model, loader, nn.MSELoss(), optimizer)


if __name__ == "__main__":
    main()
