"""Which stretches of a trace are steps: the profiler's own marks, else what repeats, else the whole."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from statistics import median
from typing import Any

from torchvet.traces.intervals import Span, stretch
from torchvet.traces.timeline import Item, Thread, Timeline
from torchvet.traces.window import WHOLE, Window, window_of

_NUMBER = re.compile(r"ProfilerStep#(\d+)")
FEWEST = 2
FEWEST_NAMES = 3
_MOST_UNEVEN = 4.0


def steps_of(timeline: Timeline) -> Window | None:
    """The steps, or None for a trace without anything that lasts."""
    marked = sorted(timeline.spans.get("step", ()), key=stretch)
    if marked:
        numbers = [int(m.group(1)) if (m := _NUMBER.match(i.name)) else n for n, i in enumerate(marked)]
        return window_of(list(map(stretch, marked)), numbers, "ProfilerStep", marked[0].thread, timeline)
    thread = _main_thread(timeline)
    bounds = _bounds(timeline)
    if bounds is None:
        return None
    for found_by, items in (
        ("optimizer steps", [i for i in timeline.spans.get("optimizer", ()) if ".step#" in i.name]),
        ("loader batches", timeline.spans.get("data", [])),
        ("a repeated operator", _repeated(timeline, thread)),
    ):
        spans = _between(items, bounds, at_end=found_by == "optimizer steps")
        # Layers of one forward pass repeat too: what repeats is a step only with a backward pass of its own.
        if spans and (found_by != "a repeated operator" or _each_holds(spans, timeline.spans.get("backward", ()))):
            return window_of(spans, range(len(spans)), found_by, thread, timeline)
    return window_of([bounds], [0], WHOLE, thread, timeline)


def _main_thread(timeline: Timeline) -> Thread | None:
    """The thread that dispatches forward passes: the one with most operators that are none of backward's."""
    counts: dict[Thread, int] = {}
    for item in timeline.operators:
        counts[item.thread] = counts.get(item.thread, 0) + 1
    for item in timeline.spans.get("backward", ()):
        # Each node of backward stands for several operators that are not of a forward pass.
        counts[item.thread] = counts.get(item.thread, 0) - 4
    # An optimizer step or a loader outweighs any number of operators: both are in the main thread.
    for item in timeline.spans.get("optimizer", []) + timeline.spans.get("data", []):
        counts[item.thread] = counts.get(item.thread, 0) + 1_000_000
    return max(counts, key=lambda t: counts[t], default=None)


def _bounds(timeline: Timeline) -> Span | None:
    # Calls into the driver are left out where there is more: the last one is the profiler waiting for the device.
    columns: list[list[Any]] = [timeline.operators, timeline.frames, *timeline.spans.values()]
    columns = columns if any(columns) else [timeline.calls, timeline.work]
    items = [item for column in columns for item in column]
    if not items:
        return None
    start, end = min(i.start for i in items), max(i.end for i in items)
    return (start, end) if end > start else None


def _between(items: list[Item], bounds: Span, at_end: bool) -> list[Span]:
    """Steps from one mark to the next; what is before the first or after the last mark is a step only if whole."""
    times = sorted(i.end if at_end else i.start for i in items)
    times = [bounds[0], *times] if at_end else [*times, bounds[1]]
    spans = [(a, b) for a, b in pairwise(times) if b > a]
    if len(spans) < FEWEST:
        return []
    usual = median(b - a for a, b in spans)
    # Several optimizers in one step, or a loader within a loader: short stretches belong to the next.
    joined: list[Span] = []
    for start, end in spans:
        if joined and joined[-1][1] - joined[-1][0] < usual / _MOST_UNEVEN:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined if len(joined) >= FEWEST else []


def _repeated(timeline: Timeline, thread: Thread | None) -> list[Item]:
    """The first operator of what repeats at even distances, as often as there are steps.

    That number is how often several operators are called, and of such numbers the one that divides most others.
    """
    called: dict[str, list[Item]] = {}
    for item in timeline.operators:
        if item.thread == thread:
            called.setdefault(item.name, []).append(item)
    counts = [len(items) for items in called.values()]
    best: tuple[int, int] = (0, 0)
    for number in set(counts):
        if number > FEWEST and counts.count(number) >= FEWEST_NAMES:
            # What is called several times in a step is called a multiple of times.
            best = max(best, (sum(c % number == 0 for c in counts), number))
    candidates = [sorted(i, key=stretch) for i in called.values() if len(i) == best[1] and _even(i)]
    return min(candidates, key=lambda c: c[0].start, default=[])


def _each_holds(spans: list[Span], items: Iterable[Item]) -> bool:
    """Whether an item begins in every one of the stretches."""
    starts = sorted(i.start for i in items)
    return all(bisect_left(starts, first) < bisect_left(starts, last) for first, last in spans)


def _even(items: list[Item]) -> bool:
    starts = sorted(i.start for i in items)
    gaps = [b - a for a, b in pairwise(starts)]
    return min(gaps) > 0 and max(gaps) < 3 * median(gaps) and min(gaps) > median(gaps) / 3
