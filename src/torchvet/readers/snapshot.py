"""A CUDA memory snapshot, typed: segments with their blocks, and the trace of allocator events as columns.

Written by `torch.cuda.memory._dump_snapshot()` (a dict), `torch.cuda.memory_snapshot()` (a list of segments) and
their like. Half a million events are six numbers each in a few arrays, so that the whole file need not stay as objects.
Sizes are bytes, times microseconds since the epoch, addresses the device's.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cached_property

ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
    "oom", "snapshot", "free", "other",
)  # fmt: skip
"""Names of events; a trace keeps their places in this tuple. `free` stands for both halves in the oldest traces."""
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM = range(8)
FREE = 9
FREES = frozenset({FREE_COMPLETED, FREE})
GROWS, SHRINKS = frozenset({SEGMENT_ALLOC, SEGMENT_MAP}), frozenset({SEGMENT_FREE, SEGMENT_UNMAP})

ALLOCATED, PENDING, INACTIVE = range(3)
STATES = {
    "active_allocated": ALLOCATED,
    "active_pending_free": PENDING,
    "active_awaiting_free": PENDING,
    "inactive": INACTIVE,
}
"""What blocks are called: freed by the program and waiting for a stream has one name in C++ and one in a docstring."""


@dataclass(frozen=True)
class Frame:
    """A stack frame; `fx` is the line of the model that a compiled graph's node came from, where that is known."""

    path: str
    line: int
    name: str
    fx: str = ""

    @cached_property
    def python(self) -> bool:
        """Whether it is Python's, not C++'s."""
        return self.path.endswith(".py") or self.path.startswith("<")


@dataclass(frozen=True)
class Block:
    """A part of a segment: `size` bytes, of which the program asked for `requested`."""

    address: int
    size: int
    requested: int
    state: int
    stack: int

    @property
    def active(self) -> bool:
        """Whether it cannot be handed out."""
        return self.state != INACTIVE


@dataclass(frozen=True)
class Segment:
    """Memory taken from the driver in one piece. Expandable ones list what is mapped, piece by piece."""

    device: int
    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[Block, ...]

    @property
    def held(self) -> int:
        """Bytes in blocks that cannot be handed out."""
        return sum(b.size for b in self.blocks if b.active)

    @property
    def split_free(self) -> int:
        """Free bytes that cannot go back to the driver because others of the segment are in use."""
        held = self.held
        return self.size - held if held and not self.expandable else 0


@dataclass(frozen=True)
class Trace:
    """The events of one device, oldest first; all columns are equally long, but no `streams` are the default one.

    The first `began` at that time, `microseconds` went by until the last; both are 0 where torch wrote no times. An
    `oom` event carries the bytes that the driver had left in the place of its address. `times` of all events are read
    only when asked for: what judges goes by their order.
    """

    device: int
    actions: bytes
    addresses: array[int]
    sizes: array[int]
    stacks: array[int]
    streams: array[int]
    microseconds: int
    began: int = 0
    times: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.actions)

    def where(self, *codes: int) -> list[int]:
        """The events of some kinds, by their numbers, in order. Quick where they are few."""
        found = []
        for code in codes:
            at = self.actions.find(code)
            while at >= 0:
                found.append(at)
                at = self.actions.find(code, at + 1)
        return sorted(found)


@dataclass(frozen=True)
class Annotation:
    """A mark that a program, or torch's own optimizers, put into the recording, before the event of that number.

    `before` is -1 where events have no times.
    """

    name: str
    stage: str
    device: int
    before: int


@dataclass(frozen=True)
class Snapshot:
    """A file's content. `stacks` are tuples of places in `frames`; a stack's number 0 is the empty one."""

    path: str
    segments: tuple[Segment, ...]
    traces: tuple[Trace, ...]
    frames: tuple[Frame, ...] = ()
    stacks: tuple[tuple[int, ...], ...] = ((),)
    annotations: tuple[Annotation, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> list[int]:
        """Numbers of the devices that hold anything or did anything."""
        return sorted({s.device for s in self.segments} | {t.device for t in self.traces if len(t)})

    def trace(self, device: int) -> Trace | None:
        """The events of a device, None where none were recorded."""
        return next((t for t in self.traces if t.device == device and len(t)), None)
