"""What the rules about copies and waits between host and device share: the records of a run, and how they are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchvet.formatting import size
from torchvet.rules.kit import Finding, Iterator, Measured, RankRecording, Recording, Related, Rule, Sequence, Severity

if TYPE_CHECKING:
    from torchvet.recording.records.crossing import Crossing

LARGE = 1 << 20
"""Bytes a step from which on a copy that need not be is worth a warning: a tenth of a millisecond on a fast bus, a
third on a slow one, with the wait beside it."""


class CrossingRule(Rule):
    """A rule about lines that copy between host and device, or wait, in about every step."""

    found_with = ("run", "--simulate-gpu", "24GiB")
    needs_at_work = "a device"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """What a rule says of the lines that bring something to the device."""
        for record in each_step(rank):
            if record.kind == "to device":
                yield from self.brought(rank, record, recording)

    def brought(self, rank: RankRecording, record: Crossing, recording: Recording) -> Iterator[Finding]:
        """What to say of one line that brings something to the device in about every step."""
        return iter(())

    def crossing(
        self,
        rank: RankRecording,
        record: Crossing,
        message: str,
        cause: str,
        advice: str,
        *,
        severity: Severity | None = None,
        related: Sequence[Related] = (),
    ) -> Finding:
        """A finding at a line; graded by the bytes that it copies unless a severity is given."""
        return self.observed(
            rank,
            severity=severity or ("warning" if record.bytes_per_step >= LARGE else "info"),
            message=f"{message} (seen in {min(record.steps, record.sampled)} of {record.sampled} sampled steps)",
            place=record.place,
            cause=cause,
            advice=advice,
            measured=Measured(bytes=record.bytes or None, steps=record.sampled),
            related=related,
        )


def each_step(rank: RankRecording) -> Iterator[Crossing]:
    """Every line that copies or waits in about every step, the totals written last."""
    return (record for record in last_totals(rank) if record.each_step)


def last_totals(rank: RankRecording) -> Iterable[Crossing]:
    """Of every line that copies or waits the totals that were written last."""
    from torchvet.recording.records.crossing import Crossing

    return {(record.place, record.kind, record.what): record for record in rank.all(Crossing)}.values()


def mostly(part: int, record: Crossing) -> bool:
    """Whether a thing holds for nearly all calls of a line; the first of them may be another."""
    return record.calls >= 2 and part >= record.calls - 1 and part >= 0.9 * (record.calls - 1)


def is_known(record: Crossing) -> bool:
    """Whether the run showed where the data came from: numbers, a loader, or the copy of the step before."""
    return bool(record.filled or record.batches or record.repeated)


def amount(record: Crossing) -> str:
    """Bytes a step, in words."""
    return f"{size(record.bytes_per_step)} a step"
