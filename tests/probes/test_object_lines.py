"""Python's allocations are traced for a few steps: the lines whose objects live on, and tensors of any thread."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchvet.probes.base.schedule import Schedule
from torchvet.probes.memory import host_samples, object_lines
from torchvet.probes.memory.host_samples import HostSampler
from torchvet.probes.memory.object_lines import ObjectTracing
from torchvet.recording.records.memory import ObjectLines


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has run thousands of tests has more objects than any program."""
    monkeypatch.setattr(object_lines, "_SECONDS", 300.0)
    monkeypatch.setattr(object_lines, "_OWN_SECONDS", 300.0)
    monkeypatch.setattr(object_lines, "_MOST_BYTES", 1 << 32)


LINE = sys._getframe().f_lineno + 5


def keep(kept: list[Any]) -> None:
    """Something lives on that is no tensor."""
    kept.append(bytes(50_000))


def traced(step: Callable[[], object], steps: int = 16) -> ObjectLines | None:
    tracing = ObjectTracing()
    tracing.begin(1)
    for tick in range(2, steps):
        step()
        found = tracing.boundary(tick, 1.0)
        if found is not None:
            assert not tracing.on and not tracemalloc.is_tracing()
            return found
    tracing.end()
    assert not tracemalloc.is_tracing()
    return None


def test_the_line_whose_objects_live_on_is_found_with_its_bytes() -> None:
    kept: list[Any] = []
    found = traced(lambda: keep(kept))
    assert found is not None and (found.first, found.last) == (4, 13)
    assert (found.lines[0].place.path, found.lines[0].place.line) == (__file__, LINE)
    assert found.lines[0].bytes == pytest.approx(50_033, rel=0.01) and found.storages == 0


def test_it_is_noted_whether_the_collector_has_run_meanwhile() -> None:
    kept: list[Any] = []
    gc.disable()
    try:
        waits = traced(lambda: keep(kept))
        ran = traced(lambda: (keep(kept), gc.collect()))
    finally:
        gc.enable()
    assert waits is not None and not waits.collected and ran is not None and ran.collected


@pytest.mark.parametrize("seconds", [300.0, 0.0])
def test_what_is_kept_at_every_third_step_is_found_where_time_runs_out_too(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_lines, "_OWN_SECONDS", seconds)
    kept: list[Any] = []
    steps = iter(range(100))
    found = traced(lambda: next(steps) % 3 or keep(kept))
    assert found is not None and found.lines[0].bytes == pytest.approx(50_033 / 3, rel=0.01)


def test_what_each_step_makes_and_drops_is_no_line() -> None:
    last: list[Any] = [None]

    def step() -> None:
        last[0] = bytes(50_000)

    found = traced(step)
    assert found is not None and all(one.bytes < 1000 for one in found.lines)


def test_tensors_of_another_thread_are_counted_exactly() -> None:
    kept: list[torch.Tensor] = []

    def step() -> None:
        thread = threading.Thread(target=lambda: kept.append(torch.zeros(1000)))
        thread.start()
        thread.join()

    found = traced(step)
    assert found is not None and found.storages == 4000


def test_a_program_that_traces_itself_is_left_alone() -> None:
    tracemalloc.start()
    try:
        tracing = ObjectTracing()
        tracing.begin(1)
        assert not tracing.on
        tracing.end()
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


def test_a_program_that_stops_all_tracing_ends_it() -> None:
    tracing = ObjectTracing()
    tracing.begin(1)
    tracemalloc.stop()
    assert tracing.boundary(3, 1.0) is None and not tracing.on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_that_is_forked_meanwhile_traces_nothing() -> None:
    tracing = ObjectTracing()
    tracing.begin(1)
    child = os.fork()
    if not child:
        os._exit(tracemalloc.is_tracing())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and tracemalloc.is_tracing()
    tracing.end()


def test_slow_steps_end_it_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_lines, "_SECONDS", 0.0)
    monkeypatch.setattr(object_lines, "_SHARE", 0.0)
    kept: list[Any] = []
    assert traced(lambda: keep(kept)) is None
    assert not tracemalloc.is_tracing()


class _Host:
    """Samples go by its heap; records are kept."""

    sampling = False
    active = True

    def looking(self, what: str) -> Any:
        return nullcontext()

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.write = self.records.append
        self.schedule = Schedule()

    def elapsed(self) -> float:
        """Long enough for what tracing takes."""
        return 100.0


@pytest.mark.parametrize(("grows", "begins"), [(10_000, True), (1_000, False), (0, False)])
def test_objects_are_traced_where_the_heap_rises(monkeypatch: pytest.MonkeyPatch, grows: int, begins: bool) -> None:
    now = SimpleNamespace(tick=0)
    monkeypatch.setattr(host_samples.host, "heap_in_use", lambda: 10**8 + grows * now.tick)
    monkeypatch.setattr(host_samples.host, "small_objects", lambda: 0)
    sampler, kept = HostSampler(_Host()), []  # type: ignore[arg-type,var-annotated]
    for tick in range(1, 70):
        now.tick = tick
        keep(kept)
        sampler.settle(tick, "training")
        assert sampler.waits() or not tracemalloc.is_tracing()
    sampler.remove()
    records = sampler.host.records  # type: ignore[attr-defined]
    assert [r.lines[0].place.line for r in records if isinstance(r, ObjectLines)] == ([LINE] if begins else [])


def test_a_profiler_that_is_still_on_is_noted_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(tick=0)
    monkeypatch.setattr(host_samples.host, "heap_in_use", lambda: 10**8 + 10_000 * now.tick)
    monkeypatch.setattr(host_samples.host, "small_objects", lambda: 0)
    sampler = HostSampler(_Host())  # type: ignore[arg-type]
    sampler.install()
    try:
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        profiler.start()
        for now.tick in range(1, 130):
            if now.tick == 60:
                profiler.stop()
            sampler.settle(now.tick, "training")
    finally:
        sampler.remove()
    first, second = (r for r in sampler.host.records if isinstance(r, ObjectLines))  # type: ignore[attr-defined]
    assert first.profiler is not None and first.profiler.path == __file__ and second.profiler is None


def test_no_sample_is_taken_while_objects_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traces themselves are in the heap."""
    now = SimpleNamespace(tick=0)
    monkeypatch.setattr(host_samples.host, "heap_in_use", lambda: 10**8 + 10_000 * now.tick)
    monkeypatch.setattr(host_samples.host, "small_objects", lambda: 0)
    sampler = HostSampler(_Host())  # type: ignore[arg-type]
    for now.tick in range(1, 60):
        sampler.settle(now.tick, "training")
    list(sampler.totals(60))
    sampler.remove()
    ticks = sampler.host.records[-1].ticks  # type: ignore[attr-defined]
    assert ticks == [*range(1, 41), *range(54, 60)]
