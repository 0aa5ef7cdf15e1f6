"""The memory that a program may have, and what of it is left: of a device or of the host."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torchvet.allocator import sizes
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.base import Census, Survivors, Window
from torchvet.recording.records.training import Host

LASTING = ("parameters", "buffers", "gradients", "gradient buckets", "optimizer state")
"""Categories of memory that is there between steps."""
_WORTH_ITS_OWN = 0.05
"""Share of a growth that decides by which of the allocator's segments memory ends."""
ADDRESS_SPACE = "the limit on address space (RLIMIT_AS)"
GIVEN = "--memory-limit"


@dataclass(frozen=True)
class Limit:
    """A limit in bytes, who sets it, and how much of it tensors can never have."""

    bytes: int
    source: str
    outside: int = 0

    @property
    def room(self) -> int:
        """Bytes that tensors may take."""
        return max(0, self.bytes - self.outside)


def limit_of(rank: RankRecording) -> Limit | None:
    """The limit that ends the program first: the device's, one that was given, or of the host's the tightest."""
    program = rank.program
    if program is None or not program.memory_limit:
        return None
    if program.device == "cuda":
        # On a device the host's limits do not end tensors.
        return Limit(program.memory_limit, program.memory_limit_source, program.memory_outside + _unusable(rank))
    # Somebody's own number is not made tighter.
    if program.memory_limit_source == GIVEN:
        return Limit(program.memory_limit, GIVEN, program.memory_outside)
    outside = program.memory_outside + _beside_tensors(rank, "resident")
    found = [Limit(program.memory_limit, program.memory_limit_source, outside)]
    if program.address_space:
        # Address space that is only reserved counts against this one and not against the other.
        found.append(Limit(program.address_space, ADDRESS_SPACE, _beside_tensors(rank, "virtual")))
    # By the room and not by the limit: much more is reserved than resident.
    return min(found, key=lambda one: one.room)


def room_of(rank: RankRecording) -> int | None:
    """Bytes that tensors may take: of a device less than its memory, as others and the allocator's segments need some,
    of the host less what Python and libraries take.

    None where no limit is known.
    """
    limit = limit_of(rank)
    return limit.room if limit is not None else None


def memory_left(rank: RankRecording, census: Census | None) -> int | None:
    """Bytes between what a step that begins at a census comes to, by the windows looked at, and what it may."""
    room = room_of(rank)
    if room is None:
        return None
    windows = rank.all(Window)
    # Windows know of nothing that was made before them but the lasting categories; a census knows of nothing passing.
    passing = max((w.peak - sum(w.categories.get(c, 0) for c in LASTING) for w in windows), default=0)
    # A window from before a leak began may still be the higher one.
    in_use = max([(census.total if census is not None else 0) + passing, *(w.peak for w in windows)])
    return max(0, room - in_use)


def _beside_tensors(rank: RankRecording, field: str) -> int:
    """Bytes of the process that are no tensors that a name reaches, where it was looked at both ways at one time."""
    totals = {c.tick: c.total for c in rank.since_restart(Census) if not c.amid}
    sizes = [(h.tick, getattr(h, field)) for h in rank.since_restart(Host) if getattr(h, field) is not None]
    beside = [size - totals[tick] for tick, size in sizes if tick in totals]
    # The least: at other looks tensors that no name reaches were among it.
    return max(0, min(beside, default=0))


def _unusable(rank: RankRecording) -> int:
    """Bytes of the last memory that no segment can be had of any more: half a segment, on the average.

    Which segments those are goes by the blocks that outlive their steps; without any, large ones.
    """
    # The last record that has any tells what grows at present.
    alive = next((r.sites for r in reversed(rank.since_restart(Survivors)) if r.sites), [])
    segments: Counter[int] = Counter()
    for one in alive:
        # The allocator's class of a request decides in which kind of segment its block lies.
        segments[sizes.segment_for(one.bytes // max(1, one.storages))] += one.bytes
    filled = [size for size, taken in segments.items() if taken >= _WORTH_ITS_OWN * segments.total()]
    return max(filled, default=sizes.LARGE_SEGMENT) // 2
