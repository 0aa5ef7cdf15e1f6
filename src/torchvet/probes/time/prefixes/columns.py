"""Columns of tensors: which dimension has grown, a few elements of each column, and what one more takes."""

from __future__ import annotations

import statistics
from collections import defaultdict
from itertools import combinations
from typing import NamedTuple

import torch

_FEW = 4
"""Columns that a call may have more than the one before."""
_POINTS = 48
"""Lengths by which a line is fitted: their pairs are counted."""
_ALIKE, _HALF_ALIKE = 1e-4, 2e-2
"""How far outputs for the same columns differ at most, by their largest: the order of sums depends on the shape."""
_HALF = (torch.float16, torch.bfloat16)


class Call(NamedTuple):
    """What the operators of a call took: those that grow with its columns, and those that grow with their square."""

    columns: int
    new: int
    linear: float
    square: float


class Line(NamedTuple):
    """Seconds by something: so many for each, and so many beside."""

    each: float
    fixed: float

    def at(self, x: float) -> float:
        """For so much of it."""
        return self.fixed + self.each * x


def grown(before: tuple[int, ...], now: tuple[int, ...]) -> int | None:
    """The one dimension that has become longer by a few; None where the shapes differ otherwise, or not."""
    if len(before) != len(now):
        return None
    different = [dim for dim, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]
    if len(different) != 1:
        return None
    dim = different[0]
    return dim if 0 < now[dim] - before[dim] <= _FEW else None


def some_of(tensor: torch.Tensor, dim: int, most: int) -> torch.Tensor:
    """A copy of some elements of each column, shape (columns, up to `most`): of the first row, where each has several
    elements."""
    found = tensor.detach().movedim(dim, 0)
    while found.ndim > 2:
        found = found[:, 0]
    return found[:, :most].clone() if found.ndim == 2 else found.unsqueeze(1).clone()


def begins_with(before: torch.Tensor, now: torch.Tensor) -> bool:
    """Whether the first columns are those."""
    return before.dtype == now.dtype and torch.equal(now[: len(before)], before)


def begins_like(before: torch.Tensor, now: torch.Tensor) -> bool | None:
    """The same up to rounding; None where they cannot be compared."""
    first = now[: len(before)]
    if first.shape != before.shape or first.dtype != before.dtype or not before.numel():
        return None
    most = _HALF_ALIKE if before.dtype in _HALF else _ALIKE
    return bool((first - before).abs().max() <= most * before.abs().max())


def fitted(points: list[tuple[float, float]]) -> Line:
    """The line through them, by the median of the slopes between any two: a moment in which the machine was busy does
    not count."""
    by_x: dict[float, list[float]] = defaultdict(list)
    for x, y in points:
        by_x[x].append(y)
    middle = sorted((x, statistics.median(of_x)) for x, of_x in by_x.items())
    middle = middle[:: -(-len(middle) // _POINTS)]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(middle, 2)]
    each = max(0.0, statistics.median(slopes)) if slopes else 0.0
    return Line(each, statistics.median(y - each * x for x, y in middle))


def cost(calls: list[Call], lengths: list[tuple[int, int]]) -> tuple[float, float]:
    """Seconds of the operators of calls with so many columns, some of them new, and those that a cache would save.

    A call with a cache computes its new columns alone; what a call takes whatever its length, it takes as well.
    """
    linear = fitted([(call.columns, call.linear) for call in calls])
    square = fitted([(call.columns**2, call.square) for call in calls])
    seconds = sum(linear.at(length) + square.at(length**2) for length, _ in lengths)
    saved = sum(linear.each * (length - new) + square.each * length * (length - new) for length, new in lengths)
    return max(0.0, seconds), min(saved, seconds)
