"""What the rules about copies and waits read out of a run's records."""

from __future__ import annotations

from torchvet.formatting import size
from torchvet.recording.records.crossing import Crossing
from torchvet.rules.kit import Iterator, Measured, RankRecording, Recording

LARGE = 1 << 20
"""Bytes a step from which on a copy that need not be is worth a warning: a tenth of a millisecond on a fast bus, a
third on a slow one, with the wait beside it."""


def each_step(recording: Recording) -> Iterator[tuple[RankRecording, Crossing]]:
    """Every line that copies or waits in about every step, the totals written last."""
    for rank in recording.ranks:
        last = {(r.place, r.kind, r.what): r for r in rank.all(Crossing)}
        yield from ((rank, record) for record in last.values() if record.each_step)


def mostly(part: int, record: Crossing) -> bool:
    """Whether a thing holds for nearly all calls of a line; the first of them may be another."""
    return record.calls >= 2 and part >= record.calls - 1 and part >= 0.9 * (record.calls - 1)


def of_loader(record: Crossing) -> bool:
    """Whether a line brings batches to the device."""
    return mostly(record.batches, record)


def measured(record: Crossing) -> Measured:
    """Bytes copied, in how many sampled steps."""
    return Measured(bytes=record.bytes or None, steps=record.sampled)


def amount(record: Crossing) -> str:
    """Bytes a step, in words."""
    return f"{size(record.bytes_per_step)} a step"


def seen(record: Crossing) -> str:
    """How often it was seen."""
    return f"seen in {min(record.steps, record.sampled)} of {record.sampled} sampled steps"
