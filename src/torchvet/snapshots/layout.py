"""How segments were divided at one moment: what is free in them, and which blocks keep it from being given back."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchvet.allocator.sizes import SMALLEST
from torchvet.readers.snapshot import SEGMENT_ALLOC, SEGMENT_FREE
from torchvet.snapshots.places import Place

if TYPE_CHECKING:
    from torchvet.snapshots.memory import DeviceMemory


@dataclass
class Pin:
    """Blocks of one line and category that keep `free` bytes around them from going back."""

    place: Place | None
    category: str
    blocks: int = 0
    bytes: int = 0
    free: float = 0.0
    segments: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Layout:
    """Bytes at one moment. `split_free` lies in segments that are in part in use, `whole_free` in segments that are
    not.

    `held` is what blocks take, rounded to 512 bytes; expandable segments count as reserved and held, never as split.
    """

    reserved: int
    held: int
    split_free: int
    whole_free: int
    split_segments: int
    largest_free: int
    pins: tuple[Pin, ...]

    @property
    def share(self) -> float:
        """The share of the reserved bytes that fragmentation keeps."""
        return self.split_free / self.reserved if self.reserved else 0.0


@dataclass(frozen=True)
class Live:
    """A block in use, with what the allocator gives it."""

    address: int
    size: int
    stack: int
    category: str


def layout_at(memory: DeviceMemory, at: int) -> Layout:
    """The layout after event `at`: the segments at the end with what came later undone, and the blocks in use."""
    live = _live(memory, at)
    split = whole = largest = divided = 0
    pins: dict[tuple[Place | None, str], Pin] = {}
    for address, size, blocks in _filled(memory, at, live):
        gaps = _gaps(address, size, blocks)
        # A segment without a block in use can be given back: it is cache and no fragmentation.
        if not blocks:
            whole += size
            continue
        free = sum(gaps)
        divided += bool(free)
        split += free
        largest = max(largest, *gaps)
        _pin(memory, pins, address, blocks, free)
    return Layout(
        reserved=memory.reserved_at(at),
        held=sum(b.size for b in live),
        split_free=split,
        whole_free=whole,
        split_segments=divided,
        largest_free=largest,
        pins=tuple(sorted(pins.values(), key=lambda p: -p.free)),
    )


def segments_at(memory: DeviceMemory, at: int) -> list[tuple[int, int, list[Live]]]:
    """Address and size of each segment after event `at`, with its blocks in use in their order; those that expand are
    left out."""
    return _filled(memory, at, _live(memory, at))


def _filled(memory: DeviceMemory, at: int, live: list[Live]) -> list[tuple[int, int, list[Live]]]:
    segments = _segments_at(memory, at)
    starts = sorted(segments)
    inside: dict[int, list[Live]] = defaultdict(list)
    for block in live:
        place = bisect_right(starts, block.address) - 1
        if place >= 0 and block.address < starts[place] + segments[starts[place]]:
            inside[starts[place]].append(block)
    return [(address, size, sorted(inside[address], key=lambda b: b.address)) for address, size in segments.items()]


def _segments_at(memory: DeviceMemory, at: int) -> dict[int, int]:
    """Sizes by address of the segments that do not expand."""
    found = {s.address: s.size for s in memory.segments if not s.expandable}
    trace = memory.lifetimes.trace
    # A snapshot lists segments as they are at the end: what happened since is undone, from the last event back.
    for place in reversed(trace.where(SEGMENT_ALLOC, SEGMENT_FREE)):
        if place <= at:
            break
        if trace.actions[place] == SEGMENT_ALLOC:
            found.pop(trace.addresses[place], None)
        else:
            found[trace.addresses[place]] = trace.sizes[place]
    return found


def _live(memory: DeviceMemory, at: int) -> list[Live]:
    # Only the end is known exactly: there the snapshot says what blocks take, with rests that were not split off.
    moment, trace = memory.moment(at), memory.lifetimes.trace
    exact = {b.address: b.size for s in memory.segments for b in s.blocks if b.active} if at >= len(trace) - 1 else {}
    found = [
        Live(
            trace.addresses[s],
            exact.get(trace.addresses[s], _taken(trace.sizes[s])),
            trace.stacks[s],
            moment.category[s],
        )
        for s in moment.blocks
    ]
    older = memory.categories.older
    return found + [Live(o.address, exact.get(o.address, _taken(o.size)), o.stack, older[o]) for o in moment.older]


def _taken(size: int) -> int:
    return max(SMALLEST, -(-size // SMALLEST) * SMALLEST)


def _gaps(address: int, size: int, blocks: list[Live]) -> list[int]:
    """Free stretches of a segment; a rest that was not worth splitting off counts as free, being no one's."""
    found, at = [0], address
    for block in blocks:
        found.append(max(0, block.address - at))
        at = max(at, block.address + block.size)
    return [*found, max(0, address + size - at)]


def _pin(
    memory: DeviceMemory, pins: dict[tuple[Place | None, str], Pin], segment: int, blocks: list[Live], free: int
) -> None:
    """Share a segment's free bytes out over the blocks that keep it."""
    if not free:
        return
    for block in blocks:
        key = (memory.stacks[block.stack].place, block.category)
        pin = pins.setdefault(key, Pin(*key))
        pin.blocks += 1
        pin.bytes += block.size
        pin.free += free / len(blocks)
        pin.segments.add(segment)
