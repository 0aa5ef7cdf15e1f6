"""What else may be made of the files while they are inspected, so that none is read twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import RankTrace
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory


class Observer(Protocol):
    """Is shown what was made of each file, in order, before the report is done."""

    @property
    def needs_times(self) -> bool:
        """Whether the events of snapshots are to be read with their times."""
        ...

    def files(self, paths: list[Path]) -> None:
        """The files that will be read. Raises `BadInput` to refuse them."""
        ...

    def recording(self, recording: Recording) -> None:
        """A recording of a run."""
        ...

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """A snapshot, and its place among those given."""
        ...

    def trace(self, rank: RankTrace) -> None:
        """The digest of a trace."""
        ...


class _Several:
    """Several observers as one: each is shown everything."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    @property
    def needs_times(self) -> bool:
        """Whether one of them needs them."""
        return any(observer.needs_times for observer in self.observers)

    def files(self, paths: list[Path]) -> None:
        """See `Observer`."""
        for observer in self.observers:
            observer.files(paths)

    def recording(self, recording: Recording) -> None:
        """See `Observer`."""
        for observer in self.observers:
            observer.recording(recording)

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """See `Observer`."""
        for observer in self.observers:
            observer.snapshot(rank, memory)

    def trace(self, rank: RankTrace) -> None:
        """See `Observer`."""
        for observer in self.observers:
            observer.trace(rank)


def several(observers: Sequence[Observer]) -> Observer | None:
    """Observers as one; None for none."""
    return _Several(observers) if observers else None
