"""What is compared of the snapshots of several ranks: each one's peak, in kilobytes, so that no snapshot is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torchvet.snapshots.categories import PARAMETERS
from torchvet.snapshots.memory import SnapshotMemory
from torchvet.snapshots.places import Place


@dataclass(frozen=True)
class RankPeak:
    """A rank's peak in bytes, by category and by line; `rank` is the file's place among those given."""

    rank: int
    device: int
    bytes: int
    by_category: Mapping[str, int]
    by_line: Mapping[Place, int]
    program: frozenset[Place]
    """All lines that allocate in the recording, at the peak or not."""
    began: int
    ended: int
    """When the recording's first and last event were, in microseconds since the epoch; 0 where torch wrote no times."""

    @property
    def parameters(self) -> int:
        """Bytes of parameters, those older than the recording included."""
        return sum(held for name, held in self.by_category.items() if name.split(" (")[0] == PARAMETERS)


def peak_of(rank: int, memory: SnapshotMemory) -> RankPeak | None:
    """The peak of the device that holds most; None where no history was recorded."""
    recorded = [d for d in memory.devices if len(d.lifetimes.trace)]
    if not recorded:
        return None
    device = max(recorded, key=lambda d: d.peak.bytes)
    lines = Counter[Place]()
    for row in device.peak.lines:
        if row.place is not None:
            lines[row.place] += row.bytes
    program = frozenset(facts.place for facts in device.stacks if facts.place is not None)
    trace = device.lifetimes.trace
    return RankPeak(
        rank,
        device.device,
        device.peak.bytes,
        device.peak.by_category,
        lines,
        program,
        trace.began,
        trace.began + trace.microseconds,
    )
