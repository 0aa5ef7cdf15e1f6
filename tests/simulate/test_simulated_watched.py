"""What the simulation does for itself is none of the program's faults."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

import torchvet
from torchvet.simulate.tensors import of


def shells() -> None:
    of(torch.ones(2, 3), 0)


def casts() -> None:
    with torch.autocast("cuda"):
        torch.baddbmm(*[torch.ones(2, 2, 2, device="cuda")] * 3)


def several_results() -> None:
    torch.ones(4, device="cuda").max(0)


@pytest.mark.parametrize("work", [shells, casts, several_results])
def test_what_has_passed_leaves_nothing_in_pythons_free_lists(work: Callable[[], None]) -> None:
    # A tuple that is made from an iterator is cut to its length afterwards, and goes to another list than it came from.
    def pass_by() -> int:
        for _ in range(1000):
            work()
        return sys.getallocatedblocks()

    pass_by()
    gc.collect()
    pass_by()
    before = sys.getallocatedblocks()
    assert pass_by() - before < 300


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
