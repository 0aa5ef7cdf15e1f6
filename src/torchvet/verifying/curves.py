"""Two runs' losses, step by step: equal to the last bit, equal within a tolerance, or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

TOLERANCE = 1e-4
"""The largest relative difference of losses that count as equal. Float32 has seven digits, and another order of
summation changes the last two or three."""


@dataclass(frozen=True)
class Agreement:
    """How far the losses of two runs agree."""

    compared: int
    """How many losses were compared."""
    largest: float
    """The largest relative difference; infinite if one loss is finite and its counterpart is not."""
    first: int | None
    """The number, from 1, of the first loss that differs."""
    lengths: tuple[int, int]
    """How many losses each run has."""
    before: float | None = None
    """The last loss of the first run; None if it is not finite or there is none."""
    after: float | None = None
    """The last loss of the second run, likewise."""
    finite: int = 0
    """How many of the compared losses are finite in both runs."""

    joined: tuple[int, int] = (0, 0)
    """Where the runs went backward a different number of times: how often each did so. What was compared are the sums
    of each step's losses then."""
    alike: int = 0
    """Of these sums: how many agree within the tolerance before the first that does not."""

    @property
    def equal(self) -> bool:
        """Whether all losses are bit-identical."""
        return self.compared > 0 and self.first is None and self.lengths[0] == self.lengths[1]

    def within(self, tolerance: float) -> bool:
        """Whether both have the same losses within a relative difference."""
        return self.compared > 0 and self.lengths[0] == self.lengths[1] and self.largest <= tolerance


def compare(before: Sequence[float | None], after: Sequence[float | None], shorter: bool = False) -> Agreement:
    """Compare two loss curves; None stands for a loss that is not finite.

    With `shorter` the first run may have ended early: only the losses that both runs have count.
    """
    last = (before[-1] if before else None, after[-1] if after else None)
    lost = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a is None and b is not None), None)
    # Not at 0, where nothing would be left to compare.
    if lost:
        # Only the second run is still finite from here on, so later losses cannot agree.
        before, after = before[:lost], after[:lost]
    # A run that failed is compared as far as it came.
    lengths = (len(before), len(before) if shorter and len(before) <= len(after) else len(after))
    largest, first = 0.0, None
    for number, (a, b) in enumerate(zip(before, after, strict=False), start=1):
        if a == b:
            continue
        # Losses are counted from 1, so 0 cannot be one.
        first = first or number
        largest = max(largest, relative(a, b))
    finite = sum(a is not None and b is not None for a, b in zip(before, after, strict=False))
    return Agreement(min(len(before), len(after)), largest, first, lengths, *last, finite)


def compare_sums(
    before: Sequence[Sequence[float | None]], after: Sequence[Sequence[float | None]], tolerance: float = TOLERANCE
) -> Agreement:
    """Compare the sums of each step's losses: one pass from a sum does what a pass from each of its terms does."""
    was, now = [_sum(values) for values in before], [_sum(values) for values in after]
    unlike = (n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b and relative(a, b) > tolerance)
    alike = next(unlike, min(len(was), len(now)))
    return replace(compare(was, now), joined=(sum(map(len, before)), sum(map(len, after))), alike=alike)


def _sum(values: Sequence[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return math.fsum(finite) if len(finite) == len(values) else None


def relative(a: float | None, b: float | None) -> float:
    """The relative difference of two losses; infinite if either is not finite."""
    if a is None or b is None:
        return float("inf")
    # Never a division by 0.
    return 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))
