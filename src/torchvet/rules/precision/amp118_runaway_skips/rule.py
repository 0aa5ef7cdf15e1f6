"""AMP118: a scaler leaves out step after step, and halves its scale each time."""

from __future__ import annotations

import math

from torchvet.rules.kit import Severity, records
from torchvet.rules.precision._scaler_runs import Report, ScalerRule

_LAST_SCALE = 2.0**-128
"""The scale whose reciprocal is no fp32 number any more (measured: 144 halvings of 65,536)."""
_MANY = 20
_TOO_LOW = 5
"""Skips in a row that are too many once the scale is below 1: then the true gradients are not finite."""
_OFTEN = 0.05


class RunawaySkips(ScalerRule):
    """The scaler leaves out step after step, and halves its scale each time."""

    severity = "error"
    fix_changes_results = True

    def of_use(self, use: records.scaling.ScalingUse) -> Report | None:
        """Scalers that skip at the end of the run, have skipped long, or skip often."""
        severity, message = _judged(use) if use.enabled and use.skipped else ("info", "")
        if not message:
            return None
        return Report(
            message,
            cause="gradients were not finite whatever the scale: the values themselves are NaN or overflow",
            advice="find the first operator that makes a value that is not finite in a step that was left out; no "
            "scale fixes it",
            severity=severity,
            place=use.step_place,
        )


def _judged(use: records.scaling.ScalingUse) -> tuple[Severity, str]:
    """How bad a scaler's skips are and what they were; no text where they are what a scaler does to find its scale."""
    low = use.lowest is not None and use.lowest < 1.0
    many, late = _TOO_LOW if low else _MANY, use.skipped - use.early
    # From 144 halvings in a row on the reciprocal of the scale overflows, and the next finite step writes infinities.
    if use.trailing >= many:
        return "error", f"the last {use.trailing:,} steps were all left out{_left(use)}"
    if use.longest >= many:
        lowest = f", down to a scale of {use.lowest:.2g}" if low else ""
        return "warning", f"{use.longest:,} steps in a row were left out{lowest}"
    # Each `interval` steps a scaler tries twice the scale, which may cost a skip: that is its way of working.
    tries = use.updates / max(1, use.interval) + 1
    often = late >= 10 and late > _OFTEN * use.steps and late > 4 * tries
    text = f"{late:,} of {use.steps:,} steps were left out after the scale had been found"
    return "warning", text if often else ""


def _left(use: records.scaling.ScalingUse) -> str:
    """The scale that is left, and how many skips before its reciprocal overflows."""
    if use.scale is None or not 0 < use.backoff < 1:
        return ""
    if use.scale <= _LAST_SCALE:
        return ": the reciprocal of the scale has overflowed, and the next finite step writes infinities"
    more = math.ceil(math.log(use.scale / _LAST_SCALE) / -math.log(use.backoff))
    return f": the scale is {use.scale:.2g}, and after {more:,} more in a row the next finite step writes infinities"
