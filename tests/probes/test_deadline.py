"""A look ends by its own work, not by what other programs on the machine do meanwhile."""

from __future__ import annotations

import time

import pytest

from torchvet.probes.base import deadline, graphs
from torchvet.probes.base.deadline import Deadline
from torchvet.probes.objects.heap import HeapWalk, Root


class Clocks:
    """Stands in for the `time` module: the clock on the wall and this thread's work, set by hand."""

    def __init__(self) -> None:
        self.clock = self.work = 100.0

    def perf_counter(self) -> float:
        return self.clock

    def thread_time(self) -> float:
        return self.work


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(deadline, "time", clocks)
    return clocks


def test_it_passes_by_work(clocks: Clocks) -> None:
    one = Deadline(0.5)
    clocks.clock += 3
    assert not one.passed() and one.left() == pytest.approx(0.5)
    clocks.work += 0.6
    assert one.passed() and one.left() < 0


def test_nobody_waits_for_ever(clocks: Clocks) -> None:
    one = Deadline(0.5)
    clocks.clock += 5
    assert one.passed()


def test_graphs_are_late_by_work(clocks: Clocks) -> None:
    late = graphs.within(1.0)
    clocks.clock += 2
    assert not late()


def test_a_walk_is_complete_though_others_have_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    began, calls = time.perf_counter(), iter(range(1_000_000))
    monkeypatch.setattr(time, "perf_counter", lambda: began + 0.05 * next(calls))
    walk = HeapWalk(2.0)
    walk.add_roots([Root("kept", "global", "__main__", "train.py", 1, value=[[n] for n in range(100_000)])])
    walk.run()
    assert walk.complete
