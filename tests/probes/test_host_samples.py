"""The host's memory is sampled at every step at first, then ever more rarely, and not where that is slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchvet.probes.base import host
from torchvet.probes.base.schedule import Schedule
from torchvet.probes.internals import collectives
from torchvet.probes.memory import host_samples
from torchvet.probes.memory.host_samples import HostSampler
from torchvet.recording.records.training import HostSamples


def sampled(steps: range, monkeypatch: pytest.MonkeyPatch, heap: Any = lambda: 7) -> list[HostSamples]:
    monkeypatch.setattr(host, "heap_in_use", heap)
    monkeypatch.setattr(host, "resident", lambda: 9)
    monkeypatch.setattr(host, "small_objects", lambda: 0)
    written: list[Any] = []
    sampler = HostSampler(observed(written))
    for tick in steps:
        sampler.settle(tick, "training")
    sampler.totals(0)
    return written


def observed(written: list[Any], elapsed: float = 0.0) -> Any:
    return SimpleNamespace(write=written.append, sampling=False, schedule=Schedule(), elapsed=lambda: elapsed)


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_samples, "_SHARE", 0)


def test_steps_are_sampled_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    ticks = [t for r in sampled(range(1, 10_001), monkeypatch) for t in r.ticks]
    assert ticks[:64] == list(range(1, 65)) and len(ticks) < 64 + 44 * 9
    assert sum(t > 5000 for t in ticks) >= 40, "the later half has enough of them"


def test_what_waits_is_written_before_much_can_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    records = sampled(range(1, 200), monkeypatch)
    assert len(records) > 1 and all(len(r.ticks) == len(r.heap) == len(r.resident) <= 64 for r in records)


def test_a_system_that_does_not_count_the_heap_has_the_resident_set(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    (record,) = sampled(range(1, 4), monkeypatch, heap=None)
    assert (record.ticks, record.heap, record.resident) == ([1, 2, 3], [], [9, 9, 9])


def test_sampled_steps_are_not_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the ledger notes is in the heap as well."""
    quick(monkeypatch)
    monkeypatch.setattr(host, "heap_in_use", lambda: 7)
    written: list[Any] = []
    told = observed(written)
    sampler = HostSampler(told)
    for tick in range(1, 9):
        told.sampling = tick < 4
        sampler.settle(tick, "training")
    sampler.totals(0)
    assert [t for r in written for t in r.ticks] == [4, 5, 6, 7, 8]


def test_steps_that_are_counted_anew_are_sampled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    (record,) = sampled([*range(1, 30), *range(1, 5)], monkeypatch)  # type: ignore[arg-type]
    assert record.ticks == [1, 2, 3, 4]


def test_a_heap_that_is_slow_to_tell_is_asked_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(host_samples.time, "thread_time", lambda: clock[0])
    monkeypatch.setattr(host_samples.time, "perf_counter", lambda: clock[0])

    def slow() -> int:
        clock[0] += 0.005
        return 7

    asked = [t for r in sampled(range(1, 10_001), monkeypatch, heap=slow) for t in r.ticks]
    assert asked[:6] == [*range(1, 7)] and len(asked) < 16 + 7 * 10, "the allowance is spent"
    # What is said of the heap goes by the later half of the run: 35 samples of a run's first 40 steps are no answer.
    for steps in (60, 120, 1000, 10_000):
        assert sum(steps / 2 <= t <= steps for t in asked) >= 4


@pytest.mark.parametrize(
    ("bytes_per_step", "elapsed", "few", "traced"),
    [
        (100_000, 1.0, 0, True),
        (5_000, 1.0, 0, False),
        (5_000, 1.0, 1 << 60, True),
        (5_000, 100.0, 0, True),
        (500, 100.0, 1 << 60, False),
    ],
)
def test_objects_are_traced_where_the_heap_rises_by_what_the_run_can_bear(
    bytes_per_step: int, elapsed: float, few: int, traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second of tracing is much for a short run whose heap rises by a few kilobytes, as logs do."""
    quick(monkeypatch)
    monkeypatch.setattr(host_samples, "_FEW_BLOCKS", few)
    steps = iter(range(1, 1000))
    monkeypatch.setattr(host, "heap_in_use", lambda: next(steps) * bytes_per_step)
    monkeypatch.setattr(host, "small_objects", lambda: 0)
    sampler = HostSampler(observed([], elapsed))
    for tick in range(1, 42):
        sampler.settle(tick, "training")
    assert sampler.waits() == traced
    sampler.remove()


@pytest.mark.parametrize(
    ("asked", "recorded"), [(None, [0, 1]), ("1", [0, 1]), ("0", [0, 0])], ids=["as usual", "one", "none"]
)
def test_collectives_that_torch_records_are_counted(
    asked: str | None, recorded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if asked is not None:
        monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", asked)
    assert sampled(range(1, 4), monkeypatch)[0].collectives == []
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        began = host_samples._recorded()
        torch.distributed.all_reduce(torch.ones(1))
        (record,) = sampled(range(1, 3), monkeypatch)
    finally:
        torch.distributed.destroy_process_group()
    assert began == recorded[0] and record.collectives == ([recorded[1]] * 2 if recorded[1] else [])


def test_collectives_of_groups_that_libraries_make_are_counted() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        group = torch.distributed.new_group([0])
        began = collectives.numbered(), collectives.numbered(of_all_ranks=True)
        for _ in range(3):
            torch.distributed.all_reduce(torch.ones(1), group=group)
        torch.distributed.all_reduce(torch.ones(1))
        assert (collectives.numbered(), collectives.numbered(of_all_ranks=True)) == tuple((n or 0) + 4 for n in began)
        assert host_samples._recorded() == collectives.numbered()
    finally:
        torch.distributed.destroy_process_group()
    assert collectives.numbered() is None


def test_a_torch_that_records_none_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_samples.private, "RECORDS_COLLECTIVES", False)
    assert host_samples._recorded() == 0
