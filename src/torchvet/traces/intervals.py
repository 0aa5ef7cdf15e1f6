"""Arithmetic on stretches of time: sorted lists of (start, end) that do not touch. Microseconds, as in the trace."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

Span = tuple[float, float]
stretch = itemgetter(0, 1)
"""The start and the end of what begins with them: work, calls, items."""


def merged(spans: Iterable[Span], gap: float = 0.0) -> list[Span]:
    """The union, in order; stretches that are no more than `gap` apart become one."""
    ordered = sorted(spans)
    if not ordered:
        return []
    found: list[Span] = []
    start, end = ordered[0]
    for first, last in ordered:
        if first > end + gap:
            if end > start:
                found.append((start, end))
            start, end = first, last
        elif last > end:
            end = last
    if end > start:
        found.append((start, end))
    return found


def total(spans: Iterable[Span]) -> float:
    """Their length together."""
    return sum(end - start for start, end in spans)


def within(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """What of a merged list lies between two times."""
    low = max(0, bisect_right(spans, (start, math.inf)) - 1)
    found = list(spans[low : bisect_left(spans, (end,))])
    if found and found[0][1] <= start:
        del found[0]
    if found:
        found[0] = (max(found[0][0], start), found[0][1])
        found[-1] = (found[-1][0], min(found[-1][1], end))
    return found


def without(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """What of one merged list is not in another."""
    found: list[Span] = []
    index = 0
    for start, end in spans:
        while index < len(taken) and taken[index][1] <= start:
            index += 1
        at = index
        while at < len(taken) and taken[at][0] < end:
            first, last = taken[at]
            if first > start:
                found.append((start, first))
            start = max(start, last)
            at += 1
        if end > start:
            found.append((start, end))
    return found


def common(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What is in both of two merged lists."""
    found: list[Span] = []
    one = two = 0
    while one < len(spans) and two < len(others):
        start, end = max(spans[one][0], others[two][0]), min(spans[one][1], others[two][1])
        if end > start:
            found.append((start, end))
        if spans[one][1] < others[two][1]:
            one += 1
        else:
            two += 1
    return found


def around(spans: Sequence[Span], time: float) -> Span | None:
    """The stretch of a merged list that a time lies in, its ends included."""
    index = bisect_right(spans, (time, math.inf)) - 1
    return spans[index] if index >= 0 and spans[index][1] >= time else None
