"""A leak within `torchvet.watch()`, in a process that has had torch for a while."""

import torch

import torchvet


def train():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    history = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = model(torch.randn(256, 64)).relu().sum()
        history.append(model(torch.randn(256, 64)).relu().sum())
        loss.backward()
        optimizer.step()


with torchvet.watch() as watched:
    train()
print([(f.code, f.holder.name) for f in watched.report.findings if f.holder and f.severity != "info"])
print([gap.check for gap in watched.report.not_checked])
