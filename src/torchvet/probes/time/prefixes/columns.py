"""Columns of tensors: which dimension has grown, a few elements of each column, and what one more takes."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import combinations, pairwise
from typing import NamedTuple

import torch

ROW = 8
"""Calls in a row that grow: a few come about by chance of the lengths."""
_FEW = 4
"""Columns that a call may have more than the one before."""
_LENGTHS, _TIMES = 1024, 16
"""Lengths whose calls are timed, and how many calls of each."""
_AN_OPERATOR, _A_BYTE = 5e-6, 6e-11
"""Seconds, about, that an operator takes of a tensor however small, with the Python around it, and that reading a byte
of weights takes."""
_WITH_CACHE = 0.9
"""What is left of the gain, about: a cache is read and joined, and a few columns use a processor worse than many."""
_DIFFERENT = 4
"""Lengths by which time is told to grow."""
_POINTS = 48
"""Lengths by which a line is fitted: their pairs are counted."""
_ALIKE, _HALF_ALIKE = 1e-4, 2e-2
"""How far outputs for the same columns differ at most, by their largest: the order of sums depends on the shape."""
_HALF = (torch.float16, torch.bfloat16)


class Call(NamedTuple):
    """What the operators of a call took: those that grow with its columns, and those that grow with their square; how
    many they were, and the bytes of the weights that they read."""

    columns: int
    linear: float
    square: float
    operators: int
    weights: int


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


class Rows:
    """Calls in a row in steps that are not sampled, by the columns that they had: when each began."""

    def __init__(self) -> None:
        self.lengths: Counter[tuple[int, int]] = Counter()
        """How many calls had so many columns, so many of them new."""
        self.seconds: dict[int, list[float]] = {}
        """From the beginning of a call to that of the next, by its columns."""
        self._shape: tuple[int, ...] = ()
        self._dim: int | None = None
        self._row: list[tuple[int, int, float]] = []

    def add(self, shape: tuple[int, ...], now: float) -> None:
        """A call with an input of this shape begins."""
        before, self._shape = self._shape, shape
        dim = grown(before, shape)
        if dim is None or (len(self._row) > 1 and dim != self._dim):
            self.end()
            self._row.append((0, 0, now))
            return
        if len(self._row) == 1:
            self._row = [(before[dim], before[dim], self._row[0][2])]
        self._dim = dim
        self._row.append((shape[dim], shape[dim] - before[dim], now))

    def end(self) -> None:
        """The row is over: it counts if it is long enough."""
        if len(self._row) > ROW:
            for (length, new, began), (_, _, ended) in pairwise(self._row):
                if len(self.seconds) < _LENGTHS or length in self.seconds:
                    times = self.seconds.setdefault(length, [])
                    times += [ended - began] * (len(times) < _TIMES)
                self.lengths[length, new] += 1
            self.lengths[self._row[-1][:2]] += 1
        self._row = []


def cost(calls: list[Call], lengths: Mapping[tuple[int, int], int], rows: Rows) -> tuple[float, float]:
    """Seconds of calls with so many columns, and those that a cache would save: of calls in `rows`, where there are
    some, else of the operators of the sampled `calls`, which had these `lengths`.

    A call with a cache computes its new columns alone; what a call takes whatever its length, it takes as well. How
    time grows with columns, and with their square, is known of the sampled calls' operators.
    """
    linear = fitted([(call.columns, call.linear) for call in calls])
    square = fitted([(call.columns**2, call.square) for call in calls])
    if not linear.each and not square.each:
        return max(0.0, sum(lengths.values()) * (linear.fixed + square.fixed)), 0.0

    def work(length: int, new: int) -> float:
        return new * (linear.each + square.each * length)

    # What a short call takes can only be guessed from long ones: a line through these may come to nothing there.
    least = statistics.median(call.operators * _AN_OPERATOR + call.weights * _A_BYTE for call in calls)
    whole = Line(1.0, linear.fixed + square.fixed)
    if len(rows.seconds) >= _DIFFERENT:
        lengths = rows.lengths
        whole = fitted([(work(length, length), one) for length, times in rows.seconds.items() for one in times])
    seconds = saved = 0.0
    for (length, new), times in lengths.items():
        took = max(0.0, whole.at(work(length, length)))
        seconds += times * took
        without = min(whole.each * work(length, length - new), (took - least) * (1 - new / length))
        saved += _WITH_CACHE * times * max(0.0, without)
    return seconds, saved
