"""Whether a fix only hides what was not finite: holds the step that failed against those around it, and float64."""

from __future__ import annotations

from collections.abc import Sequence

from torchvet.verifying.trial import Trial

_AROUND = 10
"""Steps before and after the one that failed that it is held against."""
_LOSS, _GRADIENT = 2.0, 30.0
"""How many times as large as all of these it may be. Gradients of single steps differ more."""
_SPREADS = 3.0
"""How many times the distance from the least to the largest of these it may lie above them."""
_ENOUGH = 3
_APART = 0.5
"""The share by which it may differ from what float64 gives for the same step."""
_KEPT = 0.01
"""The relative difference of losses before the failure from which on a guard has changed what was healthy."""

_ROUNDED = 1e-6
"""The same as a part of the largest of these losses."""

Numbers = Sequence[float | None]


def hidden(before: Trial, after: Trial, keeps_finite: bool) -> str:
    """What shows that the fault is only hidden; empty if nothing does. `keeps_finite`: whether the fixes are to leave
    steps as they were that were finite."""
    # Each by its own list, as a program may step once for several backward passes.
    losses = _Step("loss", before.curve, after.curve, _LOSS)
    gradients = _Step("gradient norm", before.gradients, after.gradients, _GRADIENT)
    why = losses.changed() if keeps_finite else ""
    wide = before.wide
    if wide is not None:
        # What float64 says is the truth; neighbours are only likely.
        why = why or (losses if wide.symptom == "loss" else gradients).unlike(wide.size)
    return why or losses.outlier() or gradients.outlier()


class _Step:
    """The first step of the unchanged program in which a number was not finite, in both runs."""

    def __init__(self, what: str, before: Numbers, after: Numbers, most: float) -> None:
        self._what, self._before, self._after, self._most = what, before, after, most
        # None failed where the fault was another.
        self._at = next((i for i, value in enumerate(before) if value is None), len(before))

    @property
    def _now(self) -> float | None:
        """What the number is with the fix."""
        failed = self._at < len(self._before)
        return self._after[self._at] if failed and self._at < len(self._after) else None

    def changed(self) -> str:
        """Whether a number before the failure is another with the fix."""
        healthy = self._before[: self._at]
        # A loss of exactly 0 that becomes 1e-8 is no other loss beside those of the rest.
        least = _ROUNDED * max((abs(value) for value in healthy if value is not None), default=0.0)
        for number, (one, other) in enumerate(zip(healthy, self._after, strict=False), start=1):
            if one is None or other is None:
                continue
            if abs(one - other) > max(least, _KEPT * max(abs(one), abs(other))):
                numbers = f"the {self._what} of pass {number} was {one:.3g}, is {other:.3g}"
                return f"it changes steps that were finite: {numbers}"
        return ""

    def unlike(self, wide: float) -> str:
        """Whether float64 gives another number."""
        now = self._now
        # Gradients may have been clipped by the time that a step is made with them.
        fits = now is None or abs(now - wide) <= _APART * max(abs(now), abs(wide)) or self._clipped(now, wide)
        if now is None or fits:
            return ""
        which = f"the {self._what} of pass {self._at + 1}"
        return f"it hides the fault: {which} becomes {now:.3g}, and is {wide:.3g} in float64"

    def _clipped(self, now: float, wide: float) -> bool:
        return self._what != "loss" and now < wide

    def outlier(self) -> str:
        """Whether the number is far larger than those around it."""
        now, start = self._now, max(0, self._at - _AROUND)
        # Before: as it was; after: with the fix, since the unchanged run was lost from there on.
        beside = [*self._before[start : self._at], *self._after[self._at + 1 : self._at + 1 + _AROUND]]
        around = [abs(value) for value in beside if value is not None]
        if now is None or len(around) < _ENOUGH or abs(now) <= self._most * max(around):
            return ""
        # Losses that vary widely have high ones by nature.
        if abs(now) - max(around) <= _SPREADS * (max(around) - min(around)):
            return ""
        return (
            f"it hides the fault: the {self._what} of pass {self._at + 1} becomes {now:.3g}, "
            f"in the passes around it {max(around):.3g} at most"
        )
