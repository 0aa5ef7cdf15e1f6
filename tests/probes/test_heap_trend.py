"""Slow growth of the heap is noticed by its floor; noise, warming up and sawteeth are not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from torchvet.probes.base import host
from torchvet.probes.memory import heap_trend
from torchvet.probes.memory.heap_trend import HeapTrend, rising

MB = 1 << 20


def samples(shape: Callable[[int], float], count: int = 60) -> list[int]:
    return [int(shape(i)) for i in range(count)]


@pytest.mark.parametrize("shape", [
    lambda i: 100 * MB + i * MB,
    lambda i: 100 * MB + i * MB + 20 * MB * (i % 7),
    lambda i: 10 * MB + 2 ** (i // 4) * MB,
], ids=["straight", "straight under a sawtooth", "doubling"])  # fmt: skip
def test_a_rising_floor_is_seen(shape: Callable[[int], float]) -> None:
    assert rising(samples(shape))


@pytest.mark.parametrize("shape", [
    lambda i: 100 * MB,
    lambda i: 100 * MB - i * MB,
    lambda i: 100 * MB + 30 * MB * (i % 5),
    lambda i: 100 * MB + 5 * MB * math.sin(i),
    lambda i: 100 * MB + min(i, 15) * MB,
    lambda i: 100 * MB + i * 1000,
    lambda i: 100_000 * MB + i * MB,
], ids=["flat", "falling", "sawtooth", "wave", "warming up", "tiny", "below a hundredth"])  # fmt: skip
def test_what_does_not_grow_is_not(shape: Callable[[int], float]) -> None:
    assert not rising(samples(shape))


def test_too_few_samples_say_nothing() -> None:
    assert not rising([]) and not rising([i * MB for i in range(8)])


def test_it_speaks_up_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def heap() -> int:
        now[0] += MB
        return 100 * MB + now[0]

    monkeypatch.setattr(host, "heap_in_use", heap)
    trend = HeapTrend()
    times = {tick: trend.times for tick in range(1, 500) if trend.boundary(tick)}
    assert [tick for tick in times if times[tick] > times.get(tick - 1, 0)] == [48, 72, 108, 164, 248, 372]
    assert times[499] == 6, "until it is judged anew it rises"
    assert now[0] == (499 // 4) * MB, "every fourth boundary is sampled, no other"


def test_a_steep_rise_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of autograd nodes every step: a run of seventy steps deserves an answer too."""
    now = [0]

    def heap() -> int:
        now[0] += 4 * MB
        return 100 * MB + now[0]

    monkeypatch.setattr(host, "heap_in_use", heap)
    trend = HeapTrend()
    assert [trend.boundary(tick) for tick in range(1, 49)][-1]
    assert trend.times == 2


@pytest.mark.parametrize("begins", [60, 100, 300])
def test_a_rise_that_begins_late_is_noticed(begins: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two trainings leaks: seen before it is as long as the first."""
    now = [0]
    monkeypatch.setattr(host, "heap_in_use", lambda: 100 * MB + now[0])
    trend = HeapTrend()
    for tick in range(1, 2 * begins):
        now[0] = max(0, tick - begins) * MB // 8
        if trend.boundary(tick):
            break
    assert begins < tick < 2 * begins - 1


def test_what_is_filled_again_in_the_next_epoch_does_not_rise_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(host, "heap_in_use", lambda: 100 * MB + now[0])
    trend = HeapTrend()
    said = {}
    for tick in range(1, 181):
        now[0] = (tick - 1) % 90 * MB // 8
        said[tick] = trend.boundary(tick)
    assert said[80] and not any(said[tick] for tick in range(108, 181))


def test_a_heap_that_stops_rising_is_no_longer_suspicious(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def heap() -> int:
        now[0] = min(now[0] + MB, 40 * MB)
        return 100 * MB + now[0]

    monkeypatch.setattr(host, "heap_in_use", heap)
    trend = HeapTrend()
    said = [trend.boundary(tick) for tick in range(1, 800)]
    assert said[100] and not said[-1]


def work(seconds: float) -> None:
    """Keep this thread busy."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(("step", "seen"), [(4 * MB, True), (MB // 8, False)], ids=["megabytes", "noise"])
def test_where_the_heap_is_slow_to_tell_the_resident_set_is_asked(
    monkeypatch: pytest.MonkeyPatch, step: int, seen: bool
) -> None:
    """Graphs of large models, kept: after many small allocations glibc takes milliseconds to answer."""
    now = [0]

    def slow() -> int:
        work(0.001)
        return 1

    def resident() -> int:
        now[0] += step
        return 100 * MB + now[0]

    monkeypatch.setattr(host, "heap_in_use", slow)
    monkeypatch.setattr(host, "resident", resident)
    trend = HeapTrend()
    assert any(trend.boundary(tick) for tick in range(1, 200)) is seen


def test_a_resident_set_that_is_asked_late_is_judged_as_soon_as_there_are_enough_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph that gets longer slows glibc down within twenty steps: that is not to cost the run half of its steps."""
    now, answers = [0], [0.0] * 2 + [0.001] * 3

    def heap() -> int:
        work(answers.pop(0))
        return 1

    def resident() -> int:
        now[0] += 4 * MB
        return 100 * MB + now[0]

    monkeypatch.setattr(host, "heap_in_use", heap)
    monkeypatch.setattr(host, "resident", resident)
    trend = HeapTrend()
    first = next(tick for tick in range(1, 200) if trend.boundary(tick))
    assert first == 56, "nine samples after the twentieth step, and not at twice the first verdict"


def test_a_system_that_does_not_say_is_never_suspicious(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap_trend.host, "heap_in_use", None)
    monkeypatch.setattr(heap_trend.host, "resident", lambda: None)
    trend = HeapTrend()
    assert not any(trend.boundary(tick) for tick in range(1, 500))


def test_a_heap_that_is_slow_to_tell_is_asked_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 2 ms: what is spent on asking may be a hundredth of that at most, the first answers left out."""
    spent = [0.0]

    def slow() -> int:
        start = time.thread_time()
        work(0.005)
        spent[0] += time.thread_time() - start
        return 100 * MB

    monkeypatch.setattr(host, "heap_in_use", slow)
    trend = HeapTrend()
    for tick in range(1, 1001):
        trend.boundary(tick)
    assert spent[0] <= 0.1


def test_a_busy_machine_does_not_make_the_heap_slow_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program runs in the middle of a call: that takes milliseconds, and nothing of this thread's time."""
    asked = [0]

    def interrupted() -> int:
        asked[0] += 1
        time.sleep(0.001)
        return 100 * MB

    monkeypatch.setattr(host, "heap_in_use", interrupted)
    trend = HeapTrend()
    for tick in range(1, 201):
        trend.boundary(tick)
    assert asked[0] == 200 // 4


@pytest.mark.parametrize(("peaks", "seen"), [
    ([100, 110, 120], True), ([100, 100, 100], False), ([100, 120, 110, 121], False), ([50, 100, 100, 100.5], False),
    ([100, 110], False), ([100, 90, 95, 100], True),
])  # fmt: skip
def test_three_peaks_that_rise_are_a_trend(peaks: list[int], seen: bool) -> None:
    trend = HeapTrend()
    assert [trend.peak(int(p)) for p in peaks][-1] is seen
