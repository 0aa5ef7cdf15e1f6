"""Arithmetic on stretches of time: sorted lists of (start, end) that do not touch. Microseconds, as in the trace."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

Span = tuple[float, float]
stretch = itemgetter(0, 1)
"""The start and the end of what begins with them: work, calls, items."""


def merged(spans: Iterable[Span], gap: float = 0.0) -> list[Span]:
    """The union, in order; stretches that are no more than `gap` apart become one."""
    found: list[Span] = []
    start = end = 0.0
    for first, last in sorted(spans):
        if not found:
            pass
        elif first <= end + gap:
            if last > end:
                end = last
                found[-1] = (start, end)
            continue
        if last > first:
            start, end = first, last
            found.append((start, end))
    return found


def total(spans: Iterable[Span]) -> float:
    """Their length together."""
    return sum(end - start for start, end in spans)


def within(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """What of a merged list lies between two times."""
    if not spans or end <= start:
        return []
    index = max(0, bisect_right(spans, (start, start)) - 1)
    found = []
    for first, last in spans[index:] if len(spans) - index < 8 else _from(spans, index):
        if first >= end:
            break
        if last > start:
            found.append((first if first > start else start, last if last < end else end))
    return found


def _from(spans: Sequence[Span], index: int) -> Iterable[Span]:
    while index < len(spans):
        yield spans[index]
        index += 1


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
    index = bisect_right(spans, (time, float("inf"))) - 1
    return spans[index] if index >= 0 and spans[index][1] >= time else None
