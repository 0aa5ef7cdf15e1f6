"""Memory that did not suffice, or would not: what was asked for, what was in use, and whether growth, fragmentation or
a peak made it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torchvet.allocator.sizes import Settings, rounded, segment_for
from torchvet.readers.snapshot import SEGMENT_ALLOC
from torchvet.snapshots.categories import ACTIVATIONS, INPUTS, TEMPORARIES
from torchvet.snapshots.growth import Growth
from torchvet.snapshots.layout import Layout, layout_at
from torchvet.snapshots.places import OPTIMIZER, StackFacts
from torchvet.snapshots.state_at import Moment

if TYPE_CHECKING:
    from torchvet.snapshots.memory import DeviceMemory

_GREW = 0.10
"""The share of what was in use that must have leaked for growth to be the reason."""
_SCATTERED = 0.05
"""The share of what was reserved that must lie free in pieces for fragmentation to be the reason: some always does."""


@dataclass(frozen=True)
class Shortage:
    """An event at which a device needs more than it has."""

    memory: DeviceMemory
    at: int

    @property
    def capacity(self) -> int:
        """Bytes that there are."""
        raise NotImplementedError

    @cached_property
    def stack(self) -> StackFacts:
        """Where memory was asked for."""
        return self.memory.stacks[self.memory.lifetimes.trace.stacks[self.at]]

    @cached_property
    def moment(self) -> Moment:
        """What was in use."""
        return self.memory.moment(self.at)

    @property
    def growth(self) -> Growth | None:
        """What grew over the steps before."""
        return self.memory.growth

    @property
    def leaked(self) -> int:
        """Bytes in use that leaks had left."""
        return sum(leak.total for leak in self.growth.leaks) if self.growth else 0

    @cached_property
    def of_the_batch(self) -> int:
        """Bytes in use that a smaller batch needs less of: activations, inputs, temporaries but the optimizer's."""
        sizes, phases = self.memory.lifetimes.trace.sizes, self.memory.phases
        wanted = (ACTIVATIONS, INPUTS, TEMPORARIES)
        chosen = [start for start, category in self.moment.category.items() if category in wanted]
        return sum(sizes[start] for start in chosen if phases.kind(start) != OPTIMIZER)

    @property
    def reason(self) -> str:
        """`growth` where leaks took a good part of it, else `peak`."""
        return "growth" if self.leaked > _GREW * self.moment.bytes else "peak"


@dataclass(frozen=True)
class AboveLimit(Shortage):
    """The peak of a recording that had more memory than the user means to have."""

    @property
    def capacity(self) -> int:
        """The user's limit."""
        assert self.memory.limit is not None
        return self.memory.limit


@dataclass(frozen=True)
class Failure(Shortage):
    """The last request of a device that could not be met."""

    @cached_property
    def requested(self) -> int:
        """Bytes asked for."""
        return self.memory.lifetimes.trace.sizes[self.at]

    @cached_property
    def driver_free(self) -> int:
        """Bytes that the driver had left."""
        return max(0, self.memory.lifetimes.trace.addresses[self.at])

    @cached_property
    def layout(self) -> Layout:
        """How it lay."""
        return layout_at(self.memory, self.at)

    @cached_property
    def capacity(self) -> int:
        """Bytes that this process could have had: what it held and, unless a limit of its own kept it from that, what
        the driver had left."""
        return self.layout.reserved + (0 if self.capped else self.driver_free)

    @property
    def capped(self) -> bool:
        """Whether the driver had enough, so that a limit of the process (`set_per_process_memory_fraction`) said no."""
        return self.driver_free >= segment_for(rounded(self.requested, Settings()))

    @property
    def reason(self) -> str:
        """`fragmentation` where enough was free, only not in one piece; `growth` where leaks took it; else `peak`."""
        free = self.layout.split_free
        scattered = self.layout.share > _SCATTERED and free + self.capacity - self.layout.reserved >= self.requested
        if scattered and not (super().reason == "growth" and self.leaked > free):
            return "fragmentation"
        return super().reason


def driver_calls(memory: DeviceMemory) -> dict[int, int]:
    """Requests to the driver by step."""
    found: dict[int, int] = {}
    for at in memory.lifetimes.trace.where(SEGMENT_ALLOC):
        step = memory.phases.step(at)
        found[step] = found.get(step, 0) + 1
    return found
