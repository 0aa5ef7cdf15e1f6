"""The common part of findings from dry runs: what a step took on the simulated card, in parts."""

from __future__ import annotations

from typing import NamedTuple

from torchvet.recording.records.dry import DryPart, DrySize
from torchvet.rules.kit import Iterator, RankRecording, Recording

SMALL = 64 << 20
"""Bytes below which a peak is no one's trouble, whatever it consists of."""


class Sized(NamedTuple):
    """A rank's own steps and the parts of their peak, bytes by category."""

    rank: RankRecording
    size: DrySize
    parts: dict[str, int]

    def share(self, category: str) -> float:
        """A category's share of the peak."""
        whole = sum(self.parts.values())
        return self.parts.get(category, 0) / whole if whole else 0.0


def sized(recording: Recording) -> Iterator[Sized]:
    """The ranks that were sized and whose peak is worth a word."""
    for rank in recording.ranks:
        size = rank.last(DrySize)
        if size is not None and size.kind == "training" and size.allocated >= SMALL:
            yield Sized(rank, size, {p.category: p.bytes for p in rank.all(DryPart)})
