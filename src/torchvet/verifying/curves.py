"""Two runs' losses, step by step: equal to the last bit, equal within a tolerance, or not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 1e-4
"""The largest relative difference of two losses that still count as equal. Float32 has seven digits, and sums that are
taken in another order differ in the last two or three of them."""

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Agreement:
    """`compared` losses of which the first to differ is number `first` (from 1); `largest` is the largest relative
    difference. `before` and `after` are the last losses, None where one is not finite or there is none; `lengths`
    says how many there were of each."""

    compared: int
    largest: float
    first: int | None
    lengths: tuple[int, int]
    before: float | None = None
    after: float | None = None

    @property
    def equal(self) -> bool:
        """Whether all are the same to the last bit."""
        return self.compared > 0 and self.first is None and self.lengths[0] == self.lengths[1]

    def within(self, tolerance: float) -> bool:
        """Whether both have the same losses but for a relative difference."""
        return self.compared > 0 and self.lengths[0] == self.lengths[1] and self.largest <= tolerance


def compare(before: Sequence[float | None], after: Sequence[float | None], shorter: bool = False) -> Agreement:
    """Hold two curves against each other. With `shorter` the first may have ended early: only what both have counts.
    Where the first has lost its numbers and the second has not, what comes later cannot agree and is left out."""
    last = (before[-1] if before else None, after[-1] if after else None)
    lost = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a is None and b is not None), None)
    if lost:
        before, after = before[:lost], after[:lost]
    lengths = (len(before), len(before) if shorter and len(before) <= len(after) else len(after))
    largest, first = 0.0, None
    for number, (a, b) in enumerate(zip(before, after, strict=False), start=1):
        if a == b:
            continue
        first = first or number
        largest = max(largest, _relative(a, b))
    return Agreement(min(len(before), len(after)), largest, first, lengths, *last)


def _relative(a: float | None, b: float | None) -> float:
    """The relative difference of two losses; infinite where one of them is not finite."""
    if a is None or b is None:
        return float("inf")
    return abs(a - b) / max(abs(a), abs(b))


def same_output(before: str, after: str, tolerance: float = TOLERANCE) -> bool:
    """Whether two outputs have the same words, and the same numbers within a relative difference."""
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return False
    numbers = ([float(n) for n in _NUMBER.findall(text)] for text in (before, after))
    return all(a == b or _relative(a, b) <= tolerance for a, b in zip(*numbers, strict=True))
