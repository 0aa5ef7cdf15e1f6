"""Evaluations in one pass whose memory is many times that of a training step."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from torchvet.rules.kit import Iterator, RankRecording, Severity, records

_MB = 1 << 20
_TIMES, _MANY_TIMES = 2, 3
"""How many times the training step's peak, to be reported at all; to be a warning."""
_WORTH_A_LINE, _LARGE = 32 * _MB, 128 * _MB
"""The same in bytes above it."""
_SHARE = 0.005
"""Share of the memory that there is, below which it is a note."""
_BATCHES = 2
"""Passes of as many rows in one evaluation, above which somebody has chosen their number."""
_TRAINS = ("training", "backward", "manual")


@dataclass
class WholeSet:
    """An evaluation in one pass, beside the peak of an ordinary training step."""

    record: records.memory.EvaluationPeak
    training: int
    limit: int
    """Bytes of memory that there are; 0 where that is not known."""

    @property
    def times(self) -> float:
        """How many times the training step's peak it takes."""
        return self.record.bytes / self.training

    @property
    def excess(self) -> int:
        """Bytes above the training step's peak."""
        return self.record.bytes - self.training

    @property
    def severity(self) -> Severity:
        """By the bytes above a training step, and by the machine."""
        large = self.excess >= max(_LARGE, _SHARE * self.limit) and self.times >= _MANY_TIMES
        return "warning" if large else "info"

    @property
    def batch(self) -> int:
        """Rows that take no more than a training step, with a graph kept there and none here."""
        return 2 * self.record.training_rows


def whole_sets(rank: RankRecording) -> Iterator[WholeSet]:
    """Those that are worth a line, the largest first."""
    # Of windows in which an evaluation lies the peak is its own: the usual one counts.
    peaks = [w.peak for w in rank.all(records.base.Window) if w.kind in _TRAINS and w.peak]
    if not peaks:
        return
    training, program = statistics.median_low(peaks), rank.last(records.base.Program)
    found = sorted(rank.latest(records.memory.EvaluationPeak, "place"), key=lambda r: -r.bytes)
    for record in found:
        one = WholeSet(record, training, program.memory_limit if program is not None else 0)
        if record.batches <= _BATCHES and one.excess >= _WORTH_A_LINE and one.times >= _TIMES:
            yield one
