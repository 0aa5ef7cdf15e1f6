"""AMP118: a scaler leaves out step after step, and halves its scale each time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torchvet.rules.kit import Finding, Iterator, Measured, RankRecording, Recording, Rule, Severity
from torchvet.rules.precision import _scaler_runs as runs

if TYPE_CHECKING:
    from torchvet.recording.records.scaling import ScalingUse

_LAST_SCALE = 2.0**-128
"""The scale whose reciprocal is no fp32 number any more (measured: 144 halvings of 65,536)."""
_MANY = 20
_TOO_LOW = 5
"""Skips in a row that are too many once the scale is below 1: then the true gradients are not finite."""
_OFTEN = 0.05


class RunawaySkips(Rule):
    """A scaler leaves out step after step, and halves its scale each time."""

    code = "AMP118"
    name = "runaway-skips"
    summary = "The scaler leaves out step after step, and halves its scale each time"
    severity = "error"

    fix_changes_results = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Scalers that skip at the end of the run, have skipped long, or skip often."""
        for use in runs.uses(rank):
            if use.enabled and use.skipped:
                yield from self._judged(rank, use)

    def _judged(self, rank: RankRecording, use: ScalingUse) -> Iterator[Finding]:
        low = use.lowest is not None and use.lowest < 1.0
        late, tries = use.skipped - use.early, use.updates / max(1, use.interval) + 1
        if use.trailing >= (_TOO_LOW if low else _MANY):
            yield self._finding(rank, use, "error", f"the last {use.trailing:,} steps were all left out{_left(use)}")
        elif use.longest >= (_TOO_LOW if low else _MANY):
            lowest = f", down to a scale of {use.lowest:.2g}" if low else ""
            yield self._finding(rank, use, "warning", f"{use.longest:,} steps in a row were left out{lowest}")
        elif late >= 10 and late > _OFTEN * use.steps and late > 4 * tries:
            text = f"{late:,} of {use.steps:,} steps were left out after the scale had been found"
            yield self._finding(rank, use, "warning", text)

    def _finding(self, rank: RankRecording, use: ScalingUse, severity: Severity, message: str) -> Finding:
        return self.observed(
            rank, severity=severity, place=use.step_place or use.place, message=message,
            cause="gradients were not finite whatever the scale: the values themselves are NaN or overflow",
            advice="find the first operator that makes a value that is not finite in a step that was left out; no "
            "scale mends it",
            measured=Measured(steps=use.steps),
        )  # fmt: skip


def _left(use: ScalingUse) -> str:
    """The scale that is left, and how many skips before its reciprocal overflows."""
    if use.scale is None or not 0 < use.backoff < 1:
        return ""
    if use.scale <= _LAST_SCALE:
        return ": the reciprocal of the scale has overflowed, and the next finite step writes infinities"
    more = math.ceil(math.log(use.scale / _LAST_SCALE) / -math.log(use.backoff))
    return f": the scale is {use.scale:.2g}, and {more:,} more in a row poison the weights"
