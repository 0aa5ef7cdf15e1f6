"""What Python's cyclic collector took in the steps, those at the beginning left out."""

from __future__ import annotations

from typing import NamedTuple

from torchvet.recording.reader import RankRecording
from torchvet.recording.records.base import Step
from torchvet.recording.records.training import CollectorUse

_FIRST = 3
_FEWEST = 8
"""Steps between the first count and the last below which nothing is said."""


class Collections(NamedTuple):
    """Collections between two moments: how many, their seconds, and the steps in which they were."""

    number: int
    seconds: float
    steps: int

    @property
    def a_step(self) -> float:
        """Seconds."""
        return self.seconds / self.steps


def collections_of(rank: RankRecording) -> Collections | None:
    """By the totals that were written in the course of the run; None where there are not two far enough apart."""
    seen: list[tuple[int, CollectorUse]] = []
    steps = 0
    for line in rank.lines:
        if isinstance(line, Step):
            steps += line.count
        elif isinstance(line, CollectorUse) and steps >= _FIRST:
            seen.append((steps, line))
    if not seen or seen[-1][0] - seen[0][0] < _FEWEST:
        return None
    (first, start), (last, end) = seen[0], seen[-1]
    return Collections(end.collections - start.collections, end.seconds - start.seconds, last - first)
