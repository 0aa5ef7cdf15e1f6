"""Watchers are told of events in turn; one that fails does not reach the others."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from torchvet.probes.base.watcher import EVERY_STEP, Watcher
from torchvet.probes.numerics.half_optimizers import HalfOptimizers
from torchvet.probes.session.bus import Bus
from torchvet.recording.records.base import Record
from torchvet.recording.records.training import Host as HostRecord


class _Host:
    active = True
    tick = 3
    known: Any = None
    options: Any = SimpleNamespace(amp_mode=None, attempt=None, every_step=False)

    def __init__(self) -> None:
        self.failed: list[str] = []

    def write(self, record: Record) -> None:
        raise AssertionError(record)

    @contextmanager
    def looking(self, what: str, kind: str = "events") -> Iterator[None]:
        try:
            yield
        except ValueError:
            self.failed.append(what)


class _Counts(Watcher):
    """Counts batches."""

    batches = 0

    def install(self) -> None:
        self.replace(torch.nn.Identity, "forward", lambda original: lambda module, x: original(module, x) + 1)

    def batch_got(self, iterator: Any, batch: Any) -> None:
        self.batches += 1

    def totals(self, tick: int) -> Iterable[Record]:
        return [HostRecord(tick=tick, resident=self.batches, heap=None)]


class _Fails(Watcher):
    """Something that fails."""

    def batch_got(self, iterator: Any, batch: Any) -> None:
        raise ValueError


def test_a_watcher_that_fails_is_named_and_the_others_are_told_all_the_same() -> None:
    host = _Host()
    watchers = Bus(host, [_Fails, _Counts])
    watchers.tell("batch_got", None, 1)
    watchers.tell("batch_got", None, 2)
    assert host.failed == ["something that fails"] * 2
    assert [r.resident for r in watchers.totals(5) if isinstance(r, HostRecord)] == [2]


def test_what_a_watcher_replaced_is_put_back() -> None:
    before = torch.nn.Identity.forward
    watchers = Bus(_Host(), [_Counts])
    watchers.install()
    assert torch.nn.Identity()(1) == 2
    watchers.remove()
    assert torch.nn.Identity.forward is before


class _Hears(Watcher):
    """Hears of what is loaded."""

    def install(self) -> None:
        for _ in range(2):
            self.replace(torch, "load", lambda original: functools.wraps(original)(lambda *args: [original(*args)]))


def test_a_function_that_was_replaced_is_sent_to_other_processes_by_its_name(tmp_path: Path) -> None:
    before, path = torch.load, tmp_path / "one.pt"
    torch.save(1, path)
    watchers = Bus(_Host(), [_Hears])
    watchers.install()
    try:
        load: Any = torch.load
        assert load is not before and load(path) == [[1]]
        assert pickle.loads(pickle.dumps(load)) is before and pickle.loads(pickle.dumps(before)) is before
        assert copy.deepcopy([load]) == [before]
        # What else functions do.
        assert load.__code__ is before.__code__ and inspect.signature(load) == inspect.signature(before)
        assert type("Owner", (), {"load": load})().load.__self__ is not None and repr(load) == repr(before)
    finally:
        watchers.remove()
    assert torch.load is before and pickle.loads(pickle.dumps(load)) is before


def test_events_that_nobody_overrides_cost_no_call() -> None:
    host = _Host()
    Bus(host, [_Counts]).tell("backward_starts", None, False)
    assert not host.failed


class _Sleeps(_Counts):
    """Sleeps at first."""

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.ignored = EVERY_STEP


def test_a_watcher_that_sleeps_is_told_of_steps_once_it_wakes() -> None:
    watchers = Bus(_Host(), [_Sleeps])
    watchers.tell("batch_got", None, 1)
    watchers._all[0].heed()
    watchers.tell("batch_got", None, 2)
    assert [r.resident for r in watchers.totals(5) if isinstance(r, HostRecord)] == [1]


class _Boundaries(_Counts):
    """Counts batches and boundaries."""

    only_sampled = EVERY_STEP

    def boundary(self, tick: int, kind: Any) -> None:
        self.batches += 1


def _counted(watchers: Bus) -> list[int]:
    return [r.resident for r in watchers.totals(5) if isinstance(r, HostRecord)]


def test_what_means_sampled_steps_only_is_told_of_those() -> None:
    watchers = Bus(_Host(), [_Boundaries, _Counts])
    watchers.tell("boundary", 1, "training")
    watchers.sampled(False)
    watchers.tell("boundary", 2, "training")
    watchers.tell("batch_got", None, 1)
    assert _counted(watchers) == [1, 1]
    watchers.sampled(True)
    watchers.tell("boundary", 3, "training")
    assert _counted(watchers) == [2, 1]


class _Ignores(_Counts):
    """Ignores batches at first."""

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.ignored = frozenset(["batch_got"])


def test_ignored_events_are_told_once_they_are_heeded() -> None:
    watchers = Bus(_Host(), [_Ignores])
    watchers.tell("batch_got", None, 1)
    watchers._all[0].heed()
    watchers.tell("batch_got", None, 2)
    assert _counted(watchers) == [1]


def test_optimizers_of_full_precision_are_heard_of_in_sampled_steps_only() -> None:
    """Until one with parameters in half precision comes."""
    host: Any = _Host()
    bus = Bus(host, [HalfOptimizers])
    (probe,) = bus._all
    plain, half = (torch.optim.SGD([torch.zeros(2, dtype=d, requires_grad=True)]) for d in (torch.float32, torch.half))
    bus.tell("optimizer_made", plain)
    bus.sampled(False)
    bus.tell("optimizer_starts", plain)
    assert "optimizer_starts" in probe.only_sampled
    bus.tell("optimizer_made", half)
    assert not probe.only_sampled
    for one in (plain, half):
        bus.tell("optimizer_starts", one)
    assert not probe.only_sampled and not host.failed
