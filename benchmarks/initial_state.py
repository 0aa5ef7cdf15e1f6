"""How memory lay when a trace began: a snapshot's final state, played backwards through its events."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass

from torchvet.allocator.sizes import LARGE_REQUEST, SMALL, SMALLEST, Settings, rounded
from torchvet.readers.snapshot import ALLOC, FREES, SEGMENT_ALLOC, SEGMENT_FREE, Snapshot, Trace

Laid = tuple[int, int, int | None]
"""A block: its address, its size, and the bytes asked for, None where it is free."""


@dataclass(frozen=True)
class Piece:
    """A segment that was there before the first event, with all its blocks in order of addresses."""

    small: bool
    stream: int
    blocks: list[Laid]


@dataclass(frozen=True)
class _Bounds:
    size: int
    small: bool
    stream: int


def pieces_at_the_beginning(snapshot: Snapshot, trace: Trace, settings: Settings) -> list[Piece]:
    """The segments of a trace's device before its first event. Expandable ones are left out.

    A block that was freed within the trace is known by the bytes asked for alone. What lies free after it in a segment
    of the large pool is its own where it is too little to be split off, or where a later allocation begins behind it:
    allocations begin where free memory does.
    """
    segments, live = _at_the_end(snapshot, trace.device)
    streams = trace.streams or bytes(len(trace))
    events = list(zip(trace.actions, trace.addresses, trace.sizes, streams, strict=True))
    for code, address, size, stream in reversed(events):
        if code == ALLOC:
            live.pop(address, None)
        elif code in FREES:
            live[address] = (rounded(size, settings), size)
        elif code == SEGMENT_ALLOC:
            segments.pop(address, None)
        elif code == SEGMENT_FREE:
            segments[address] = _Bounds(size, size < LARGE_REQUEST, stream)
    _lengthen(live, segments, events, settings)
    return list(_pieces(segments, live))


def _lengthen(
    live: dict[int, tuple[int, int]],
    segments: dict[int, _Bounds],
    events: list[tuple[int, int, int, int]],
    settings: Settings,
) -> None:
    """Give the blocks of the beginning the rests that were not split off them, as later allocations show them."""
    starts = sorted({*live, *segments})
    ends = {address: address + size for address, (size, _) in live.items()}
    older = set(live)
    for code, address, size, _ in events:
        if code == ALLOC:
            at = bisect_left(starts, address)
            before = starts[at - 1] if at else -1
            if before in older and 0 < address - ends[before] <= SMALL:
                live[before] = (address - before, live[before][1])
            if address not in ends and address not in segments:
                insort(starts, address)
            ends[address] = address + rounded(size, settings)
        elif code in FREES and ends.pop(address, None) is not None:
            older.discard(address)
            if address not in segments:
                del starts[bisect_left(starts, address)]


def _at_the_end(snapshot: Snapshot, device: int) -> tuple[dict[int, _Bounds], dict[int, tuple[int, int]]]:
    wanted = [s for s in snapshot.segments if s.device == device and not s.expandable]
    segments = {s.address: _Bounds(s.size, s.small, s.stream) for s in wanted}
    return segments, {b.address: (b.size, b.requested) for s in wanted for b in s.blocks if b.active}


def _pieces(segments: dict[int, _Bounds], live: dict[int, tuple[int, int]]) -> Iterator[Piece]:
    starts = sorted(segments)
    inside: dict[int, list[Laid]] = {start: [] for start in starts}
    for address, (size, asked) in sorted(live.items()):
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < starts[at] + segments[starts[at]].size:
            inside[starts[at]].append((address, size, asked))
    for start in starts:
        bounds = segments[start]
        smallest = SMALLEST if bounds.small else SMALL + 1
        yield Piece(bounds.small, bounds.stream, _filled(start, start + bounds.size, inside[start], smallest))


def _filled(start: int, end: int, blocks: list[Laid], smallest: int) -> list[Laid]:
    """With free blocks in the gaps of at least `smallest` bytes; shorter ones belong to the block before them."""
    found: list[Laid] = []
    at = start
    for address, size, asked in [*blocks, (end, 0, None)]:
        gap = address - at
        if gap >= smallest or (gap and not found):
            found.append((at, gap, None))
        elif gap > 0:
            before, had, wanted = found[-1]
            found[-1] = (before, had + gap, wanted)
        if size:
            found.append((address, size, asked))
        at = address + size
    return found
