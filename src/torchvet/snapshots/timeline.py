"""A device's memory over the events of a snapshot: bytes by category and reserved, at the events that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torchvet.readers.snapshot import ALLOC, FREES, GROWS, SHRINKS

if TYPE_CHECKING:
    from torchvet.snapshots.memory import DeviceMemory

POINTS = 10_000
"""Points of a series at most; of stretches of events the highest and the lowest are kept, and the peak always."""
Clock = Callable[[int], int]
"""When an event happened; -1 is the beginning."""


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


def width_of(number: int, most: int) -> int:
    """How many of so many events a stretch has, of which the highest and the lowest are kept; 1 where all are."""
    return max(1, -(-number * 2 // most))


def points(device: DeviceMemory, most: int = POINTS) -> list[int]:
    """The events after which bytes are told, in order."""
    active, peak = device.lifetimes.active, device.peak.at
    number = len(active)
    width = width_of(number, most)
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


def by_category(device: DeviceMemory, most: int = POINTS) -> Iterator[tuple[int, dict[str, int], int]]:
    """At each of the points: the event, bytes in use by category, bytes reserved. Every dict has all categories."""
    followed, at = _Followed(device), -1
    for point in points(device, most):
        while at < point:
            at += 1
            followed.take(at)
        yield point, followed.held, followed.reserved
