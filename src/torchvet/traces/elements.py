"""Tensors that are read element by element: long runs of nothing but indexing and conversions to Python numbers."""

from __future__ import annotations

from collections import Counter

from torchvet.readers.trace_facts import Cost
from torchvet.traces.places import Places
from torchvet.traces.timeline import Item, Timeline
from torchvet.traces.window import Window

_READS = frozenset(("aten::select", "aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"))
FEWEST = 64
"""Elements in a row from which on they are read by a loop. Recurrences have other operators between."""
OWN = 0.3
"""The part of such a run's time that is not the profiler's: 512 elements take 0.47 ms, in profiles 1.3 to 1.8 ms (torch
2.13.0, CPU)."""
_BETWEEN = 500.0
"""Microseconds of Python between two reads of one loop."""


def element_loops(timeline: Timeline, window: Window, places: Places) -> list[Cost]:
    """The runs by function, the costliest first."""
    items = sorted(i for i in timeline.operators if i.thread == window.thread and window.holds(i.start))
    found: dict[object, Cost] = {}
    steps = len(window.spans)
    for run in _runs(items):
        names = Counter(i.name for i in run)
        number = names["aten::item"]  # rows that are taken apart, and stay tensors, are another thing
        if number < FEWEST:
            continue
        where = places.at(run[len(run) // 2].start, run[0].thread)
        cost = found.setdefault(where, Cost("reads of single elements", where=where))
        duration = (run[-1].end - run[0].start) / 1e6
        cost.duration += duration / steps
        cost.seconds += OWN * duration / steps
        cost.count += number / steps
    return sorted(found.values(), key=lambda c: -c.seconds)


def _runs(items: list[Item]) -> list[list[Item]]:
    """The stretches of reads that no other operator, and no long stretch of Python, is between."""
    found: list[list[Item]] = [[]]
    for item in items:
        if item.name not in _READS:
            found.append([])
        elif found[-1] and item.start - found[-1][-1].end > _BETWEEN:
            found.append([item])
        else:
            found[-1].append(item)
    return found
