"""One device's memory, as the rules ask about it. Everything is worked out when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torchvet.readers.snapshot import OOM, Segment, Snapshot
from torchvet.snapshots import forecast, places
from torchvet.snapshots.categories import Categories
from torchvet.snapshots.failure import AboveLimit, Failure
from torchvet.snapshots.growth import Growth, growth_of
from torchvet.snapshots.layout import Layout, layout_at
from torchvet.snapshots.lifetimes import Lifetimes, of_device, peak_reserved, reserved_at
from torchvet.snapshots.phases import Phases
from torchvet.snapshots.state_at import Moment


@dataclass(frozen=True)
class DeviceMemory:
    """What a snapshot says of one device. `limit` is the memory to forecast against, in bytes, None if unknown."""

    snapshot: Snapshot
    device: int
    limit: int | None = None

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The device's segments, as they stood when the snapshot was taken."""
        return tuple(s for s in self.snapshot.segments if s.device == self.device)

    @cached_property
    def stacks(self) -> list[places.StackFacts]:
        """The facts of every stack, by its number."""
        frames, stacks = self.snapshot.frames, self.snapshot.stacks
        # Asked of the events alone: frames may have been kept for blocks and not for the history.
        with_python = any(frames[n].python for used in set(self.lifetimes.trace.stacks) for n in stacks[used])
        return [places.facts_of([frames[n] for n in stack], with_python) for stack in stacks]

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Every block's beginning and end."""
        return of_device(self.snapshot, self.device)

    @cached_property
    def phases(self) -> Phases:
        """Forward, backward, optimizer, and the steps."""
        marks = tuple(a for a in self.snapshot.annotations if a.device == self.device)
        return Phases(self.lifetimes, [s.kind for s in self.stacks], marks)

    @cached_property
    def categories(self) -> Categories:
        """What each block is."""
        return Categories(self.lifetimes, self.phases, self.stacks)

    def moment(self, at: int) -> Moment:
        """What was in use after an event."""
        return Moment(self.categories, at)

    @cached_property
    def peak(self) -> Moment:
        """When most was in use."""
        return self.moment(self.lifetimes.peak_at)

    @cached_property
    def end(self) -> Moment:
        """When the snapshot was taken."""
        return self.moment(len(self.lifetimes.trace) - 1)

    @cached_property
    def growth(self) -> Growth | None:
        """What grows from step to step; None where the steps are too few to say."""
        return growth_of(self)

    @cached_property
    def failure(self) -> Failure | None:
        """The last out-of-memory error."""
        return Failure(self, self.ooms[-1]) if self.ooms else None

    @cached_property
    def above_limit(self) -> AboveLimit | None:
        """The peak, where the recorded program had more memory than the limit."""
        beyond = self.limit is not None and self.lifetimes.peak > self.limit
        return AboveLimit(self, self.lifetimes.peak_at) if beyond else None

    def first_above(self, limit: int) -> int | None:
        """See `forecast`."""
        return forecast.first_above(self, limit)

    def exhausted_at(self, per_step: float, limit: int) -> int | None:
        """See `forecast`."""
        return forecast.exhausted_at(self, per_step, limit)

    @cached_property
    def layout(self) -> Layout:
        """How segments were divided at the last out-of-memory error, else at the peak."""
        return self.failure.layout if self.failure is not None else layout_at(self, self.lifetimes.peak_at)

    @cached_property
    def layout_at_end(self) -> Layout:
        """How segments were divided when the snapshot was taken."""
        return layout_at(self, len(self.lifetimes.trace) - 1)

    @cached_property
    def ooms(self) -> list[int]:
        """The events at which the driver had too little left."""
        return self.lifetimes.trace.where(OOM)

    @cached_property
    def reserved(self) -> int:
        """Bytes held from the driver at the end."""
        return sum(s.size for s in self.segments)

    @cached_property
    def peak_reserved(self) -> int:
        """The most bytes that were ever held from the driver, as far back as the recording goes."""
        return peak_reserved(self.lifetimes.trace, self.segments)

    def reserved_at(self, at: int) -> int:
        """Bytes held from the driver after an event."""
        return reserved_at(self.lifetimes.trace, self.segments, at)


@dataclass(frozen=True)
class SnapshotMemory:
    """A snapshot's devices."""

    snapshot: Snapshot
    limit: int | None = None

    @cached_property
    def devices(self) -> list[DeviceMemory]:
        """One entry a device that holds anything or did anything."""
        return [DeviceMemory(self.snapshot, device, self.limit) for device in self.snapshot.devices]
