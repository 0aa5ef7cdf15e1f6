"""A device's memory over time: bytes by category and reserved, steps, phases, the peak, what did not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from torchvet.formatting import size
from torchvet.readers.snapshot import ALLOC, FREES, GROWS, SHRINKS

if TYPE_CHECKING:
    from torchvet.exporting.chrome import Chrome
    from torchvet.snapshots.memory import DeviceMemory

POINTS = 10_000
"""Points of a counter at most; of stretches of events the highest and the lowest are kept, and the peak always."""
SLICES = 20_000
_STEPS, _PHASES, _MARKS = 1, 2, 3
Clock = Callable[[int], int]
"""When an event happened; -1 is the beginning."""


def add_device(chrome: Chrome, device: DeviceMemory) -> None:
    """Add a process for a device."""
    name = f"{Path(device.snapshot.path).name}: device {device.device}"
    told = f" (told by {device.phases.told_by})" if device.phases.told_by else ""
    chrome.begin(name, {_STEPS: f"steps{told}", _PHASES: "phases", _MARKS: "peak and failures"})
    clock = clock_of(device)
    if clock is None:
        chrome.note(f"time of {name}", "the number of the event: this snapshot has no times")
        clock = int
    _add_counters(chrome, device, clock)
    _add_slices(chrome, device, clock)
    _add_marks(chrome, device, clock)


def clock_of(device: DeviceMemory) -> Clock | None:
    """The time of every event in microseconds, never falling; None where torch wrote none (before 2.2) or one only."""
    times = device.lifetimes.trace.times
    if not times or times[-1] <= times[0]:
        return None
    # Threads write beside each other: a time that falls back would turn slices round.
    rising, latest = [times[0] - 1], times[0]
    for time in times:
        latest = max(latest, time)
        rising.append(latest)
    return lambda at: rising[min(at + 1, len(rising) - 1)]


def points(device: DeviceMemory) -> list[int]:
    """The events after which counters are written, in order."""
    active, peak = device.lifetimes.active, device.peak.at
    number = len(active)
    width = max(1, -(-number * 2 // POINTS))
    found = {-1, peak, number - 1}
    for first in range(0, number, width):
        stretch = range(first, min(first + width, number))
        found |= {max(stretch, key=active.__getitem__), min(stretch, key=active.__getitem__)}
    return sorted(found)


class _Followed:
    """A device's bytes by category and bytes reserved, event after event."""

    def __init__(self, device: DeviceMemory) -> None:
        lifetimes, self._older = device.lifetimes, device.categories.older
        self._trace, self._begins, number = lifetimes.trace, lifetimes.begins, len(lifetimes.trace)
        self._of = {start: device.categories.of(start) for start in lifetimes.starts}
        self._freed = {o.end: o for o in lifetimes.older if o.end < number}
        # Blocks whose free is missing end with the allocation of another at their address.
        ended = ((s, lifetimes.ends[s]) for s in lifetimes.starts)
        self._lost = {end: s for s, end in ended if end < number and self._begins[end] != s}
        self.held = dict.fromkeys([*self._older.values(), *self._of.values()], 0)
        for older in lifetimes.older:
            self.held[self._older[older]] += older.size
        self.reserved = device.reserved_at(-1)

    def take(self, at: int) -> None:
        """Go on by one event."""
        code, size = self._trace.actions[at], self._trace.sizes[at]
        if code == ALLOC:
            self.held[self._of[at]] += size
            if at in self._lost:
                self._end(self._lost[at])
        elif code in FREES:
            if self._begins[at] >= 0:
                self._end(self._begins[at])
            elif at in self._freed:
                self.held[self._older[self._freed[at]]] -= size
        elif code in GROWS:
            self.reserved += size
        elif code in SHRINKS:
            self.reserved -= size

    def _end(self, start: int) -> None:
        self.held[self._of[start]] -= self._trace.sizes[start]


def by_category(device: DeviceMemory) -> Iterator[tuple[int, dict[str, int], int]]:
    """At each of the points: the event, bytes in use by category, bytes reserved. Every dict has all categories."""
    followed, at = _Followed(device), -1
    for point in points(device):
        while at < point:
            at += 1
            followed.take(at)
        yield point, followed.held, followed.reserved


def _add_counters(chrome: Chrome, device: DeviceMemory, clock: Clock) -> None:
    for at, held, reserved in by_category(device):
        time = clock(at)
        chrome.counter("bytes in use", time, {"bytes": sum(held.values())})
        if held:  # a counter of nothing is none
            chrome.counter("bytes by category", time, held)
        chrome.counter("bytes reserved", time, {"bytes": reserved})


def _add_slices(chrome: Chrome, device: DeviceMemory, clock: Clock) -> None:
    """Steps and phases; of more than can be looked at, the first."""
    number, phases = len(device.lifetimes.trace), device.phases
    begun = 0
    for step, end in enumerate(phases.boundaries[:SLICES]):
        chrome.slice(_STEPS, f"step {step}", clock(begun), clock(end), first_event=begun)
        begun = end
    for run in phases.runs[:SLICES]:
        chrome.slice(_PHASES, run.kind, clock(run.start), clock(min(run.end, number - 1)), first_event=run.start)
    if max(len(phases.boundaries), len(phases.runs)) > SLICES:
        chrome.note(f"slices of device {device.device}", f"only the first {SLICES:,} steps and phases are shown")


def _add_marks(chrome: Chrome, device: DeviceMemory, clock: Clock) -> None:
    trace, peak = device.lifetimes.trace, device.peak
    chrome.instant(
        _MARKS, f"peak: {size(peak.bytes)}", clock(peak.at), bytes=peak.bytes, event=peak.at, **peak.by_category
    )
    for at in device.ooms[:SLICES]:
        name = f"out of memory: {size(trace.sizes[at])} asked for"
        chrome.instant(_MARKS, name, clock(at), requested=trace.sizes[at], driver_free=trace.addresses[at], event=at)
