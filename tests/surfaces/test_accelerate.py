"""Accelerate needs no callback: `torchvet.watch()` around its loop sees what it does elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchvet

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")


def train(keep: bool) -> list[float]:
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    data = TensorDataset(torch.randn(960, 64), torch.randint(0, 4, (960,)))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters()), DataLoader(data, batch_size=32)
    )
    losses, kept = [], []
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
        if keep:
            kept.append(nn.functional.cross_entropy(model(x), y))
    return losses


def test_a_leak_in_its_loop_is_found_and_the_losses_stay() -> None:
    plain = train(keep=False)
    with torchvet.watch() as healthy:
        watched = train(keep=False)
    with torchvet.watch() as leaky:
        train(keep=True)
    assert watched == plain
    assert healthy.report is not None and healthy.report.facts["steps"] == 30
    assert [f for f in healthy.report.findings if f.severity != "info"] == []
    assert leaky.report is not None
    (found,) = [f for f in leaky.report.findings if f.severity != "info"]
    assert found.code == "MEM101" and found.holder is not None and found.holder.name == "kept"
