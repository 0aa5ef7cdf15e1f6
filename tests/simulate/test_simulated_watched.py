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


def peak(watch: torchvet.Watch) -> tuple[int, bool]:
    assert watch.report is not None
    found = watch.report.facts["device_peak"]
    return found["bytes"], found["exact"]


def test_the_devices_peak_is_the_blocks_where_it_is_the_highest() -> None:
    kept = torch.zeros(1_000_000, device="cuda")
    with torchvet.watch() as watch:
        torch.zeros(2_000_000, device="cuda")
        torch.cuda.reset_peak_memory_stats()
    assert peak(watch) == (12_000_256, True), "set back, but not forgotten"
    del kept


def test_a_peak_before_the_block_hides_the_blocks_unless_it_is_counted_anew() -> None:
    torch.zeros(4_000_000, device="cuda")
    with torchvet.watch() as hidden:
        torch.zeros(2_000_000, device="cuda")
    assert peak(hidden)[1] is False
    with torchvet.watch(every_step=True) as known:
        torch.zeros(2_000_000, device="cuda")
    assert peak(known) == (8_000_000, True)


def test_each_line_that_waits_is_a_fact_in_whichever_step_it_was() -> None:
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torchvet.watch(every_step=True) as watch:
        for step in range(8):
            loss = model(torch.ones(4, 8, device="cuda")).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == 5:
                loss.item()
    assert watch.report is not None
    (wait,) = watch.report.facts["waits"]
    assert (wait["what"], wait["steps"], wait["sampled"]) == ("item()", 1, 7)
    assert watch.report.facts["simulated_gpu"]


def test_the_gpu_of_a_process_is_asked_for_once() -> None:
    torchvet.simulate_gpu("24GiB")
    with pytest.raises(torchvet.TorchvetError, match="simulates another GPU already"):
        torchvet.simulate_gpu("l4")
    with pytest.raises(torchvet.BadInput, match="neither a size"):
        torchvet.simulate_gpu("gtx1")
