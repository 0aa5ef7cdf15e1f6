"""From events to blocks: when each was made and freed, what is older than the recording, how much was in use."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from torchvet.readers.snapshot import ALLOC, FREE_REQUESTED, FREES, GROWS, SHRINKS, Segment, Snapshot, Trace


@dataclass(frozen=True)
class Older:
    """A block that was there when the recording began; `end` is the event that freed it, or the trace's length."""

    address: int
    size: int
    end: int
    stack: int = 0


@dataclass(frozen=True)
class Lifetimes:
    """One device's blocks. A block of the recording is known by the number of the event that made it.

    `ends[start]` is the event that freed it, or the trace's length; `begins[end]` the other way round, -1 for a block
    that is older. `let_go[start]` is when the program freed it: earlier than `ends` where another stream was still at
    work on it. `active[i]` are the bytes in use after event `i`, as the program asked for them.
    """

    trace: Trace
    starts: array[int]
    ends: array[int]
    let_go: array[int]
    begins: array[int]
    older: tuple[Older, ...]
    active: array[int]
    at_start: int
    peak_at: int
    """The event after which most was in use; -1 where that was before the first."""

    @property
    def peak(self) -> int:
        """The most bytes in use."""
        return self.active[self.peak_at] if self.peak_at >= 0 else self.at_start

    def alive(self, at: int) -> list[int]:
        """The blocks of the recording that are in use after event `at`."""
        ends = self.ends
        return [s for s in self.starts if s <= at < ends[s]]

    def older_alive(self, at: int) -> list[Older]:
        """The older blocks that are in use after event `at`."""
        return [o for o in self.older if o.end > at]


def lifetimes_of(trace: Trace, segments: tuple[Segment, ...]) -> Lifetimes:
    """Follow a device's events from the first to the last; `segments` are that device's, as they stand at the end."""
    number = len(trace)
    ends, begins = array("i", [number]) * number, array("i", [-1]) * number
    let_go = array("i", [number]) * number
    live: dict[int, int] = {}
    older: list[Older] = []
    lost: list[int] = []
    made: list[int] = []
    at = -1
    for code, address in zip(trace.actions, trace.addresses, strict=True):
        at += 1
        if code == ALLOC:
            if address in live:  # its free is missing, so it ended here at the latest
                ends[live[address]] = let_go[live[address]] = at
                lost.append(live[address])
            live[address] = at
            made.append(at)
        elif code in FREES:
            start = live.pop(address, -1)
            if start < 0:
                older.append(Older(address, trace.sizes[at], at))
            else:
                ends[start], begins[at] = at, start
                # Where other streams were at work, the request to free it came earlier and has set this.
                if let_go[start] == number:
                    let_go[start] = at
        elif code == FREE_REQUESTED and address in live:
            let_go[live[address]] = at
    older += _never_allocated(segments, live, number)
    at_start = sum(o.size for o in older)
    active = _active(trace, at_start, [(ends[s], trace.sizes[s]) for s in lost])
    peak = max(active, default=at_start)
    peak_at = active.index(peak) if peak > at_start else -1
    return Lifetimes(trace, array("i", made), ends, let_go, begins, tuple(older), active, at_start, peak_at)


def _never_allocated(segments: tuple[Segment, ...], live: dict[int, int], end: int) -> Iterator[Older]:
    """What is in use at the end and was never allocated in the trace: it was there before."""
    for block in (b for segment in segments for b in segment.blocks):
        if block.active and block.address not in live:
            yield Older(block.address, block.requested, end, block.stack)


def _active(trace: Trace, at_start: int, lost: list[tuple[int, int]]) -> array[int]:
    signs = [1 if code == ALLOC else -1 if code in FREES else 0 for code in range(256)]
    changes: Iterable[int] = map(mul, map(signs.__getitem__, trace.actions), trace.sizes)
    if lost:
        changes = list(changes)
        for at, size in lost:
            changes[at] -= size
    return array("q", list(accumulate(changes, initial=at_start))[1:])


def at_end(segments: tuple[Segment, ...], device: int) -> Lifetimes:
    """The lifetimes of a snapshot without a trace: everything is older than it."""
    return lifetimes_of(Trace(device, b"", array("q"), array("q"), array("i"), array("q"), 0), segments)


def of_device(snapshot: Snapshot, device: int) -> Lifetimes:
    """A device's lifetimes, with a trace or without."""
    segments = tuple(s for s in snapshot.segments if s.device == device)
    trace = snapshot.trace(device)
    return lifetimes_of(trace, segments) if trace is not None else at_end(segments, device)


def reserved_at(trace: Trace, segments: tuple[Segment, ...], at: int) -> int:
    """Bytes held from the driver after event `at`: what is held at the end, less what came later."""
    held = sum(s.size for s in segments)
    for later in trace.where(*GROWS, *SHRINKS):
        if later > at:
            held += trace.sizes[later] * (-1 if trace.actions[later] in GROWS else 1)
    return held


def peak_reserved(trace: Trace, segments: tuple[Segment, ...]) -> int:
    """The most bytes held from the driver, found by going back from what is held at the end."""
    held = most = sum(s.size for s in segments)
    for at in reversed(trace.where(*GROWS, *SHRINKS)):
        held += trace.sizes[at] * (-1 if trace.actions[at] in GROWS else 1)
        most = max(most, held)
    return most
