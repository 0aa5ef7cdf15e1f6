"""What the simulation does for itself is none of the program's faults."""

from __future__ import annotations

import torch
from torch import nn

import torchvet


def test_a_recurrent_network_trains_without_a_finding() -> None:
    model, head = nn.LSTM(8, 16, 2, batch_first=True).cuda(), nn.Linear(16, 1).cuda()
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()])
    with torchvet.watch() as watch:
        for _ in range(25):
            x = torch.randn(8, 12, 8, device="cuda")
            loss = (head(model(x)[0][:, -1]) - x.sum((1, 2)).unsqueeze(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert watch.report is not None
    assert [f for f in watch.report.findings if f.severity != "info"] == []
