"""A recurrent model of binary sequences with a Bernoulli likelihood."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class RecurrentBernoulli(nn.Module):
    def __init__(self, width=8, hidden=32):
        super().__init__()
        self.cell = nn.GRUCell(width, hidden)
        self.theta = nn.Sequential(nn.Linear(hidden, 64), nn.ReLU(), nn.Linear(64, width))
        self.hidden = hidden

    def _nll_bernoulli(self, theta, x):
        return nn.functional.binary_cross_entropy_with_logits(theta, x, reduction="sum")

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.hidden)
        nll = 0.0
        for t in range(x.shape[1]):
            theta = self.theta(h)
            nll = nll + self._nll_bernoulli(theta, x[:, t])
            h = self.cell(x[:, t], h)
        return nll


def train(epoch, model, loader, optimizer):
    total = 0
    for (data,) in loader:
        optimizer.zero_grad()
        nll = model(data)
        nll.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        total += nll.item()
    print(f"Train Epoch: {epoch} NLL Loss: {total / len(loader.dataset):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.manual_seed(0)
    pattern = torch.rand(4, 8) < 0.5
    start = torch.randint(0, 4, (20 * 32, 1))
    sequences = pattern[(start + torch.arange(6)) % 4].float()
    model = RecurrentBernoulli()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    loader = DataLoader(TensorDataset(sequences), batch_size=32, shuffle=True)
    for epoch in range(1, args.steps // len(loader) + 1):
        train(epoch, model, loader, optimizer)
