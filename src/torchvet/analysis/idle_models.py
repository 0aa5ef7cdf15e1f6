"""Models and optimizers that pile up: growth by the memory of what is not trained any more.

One such model may be wanted, as an average of weights or the first of two stages. So one rise is no growth here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from torchvet.analysis.growth_series import Key, Points, nothing_at, rising_tail, size_of
from torchvet.recording.records.base import Census

_MOST = 0.5
"""Share of a rise from which on it is one of models."""
_RISES = 2


def with_beginnings(series: Mapping[Key, Points], looks: Sequence[Census]) -> dict[Key, Points]:
    """The points of every name; before the first of one that came with a model, the look at which it held nothing."""
    ticks = [look.tick for look in looks]
    found = {}
    for key, points in series.items():
        tick, first = points[0]
        before = [t for t in ticks if t < tick]
        if before and first.idle >= _MOST * size_of(first) > 0:
            points = [nothing_at(before[-1], first), *points]
        found[key] = points
    return found


def is_of_models(points: Points) -> bool:
    """Whether a name has risen by the memory of models that are not trained."""
    run = rising_tail(points)
    return run[-1][1].idle - run[0][1].idle > _MOST * max(0, size_of(run[-1][1]) - size_of(run[0][1]))


def pile_up(points: Points) -> bool:
    """Whether such models have come to a name time and again."""
    sizes = [held.idle for _, held in rising_tail(points)]
    return sum(a < b for a, b in itertools.pairwise(sizes)) >= _RISES


def later_by(points: Points, looks: Sequence[Census]) -> int:
    """By how many ticks more than the looks at some points the newest models at these lie apart.

    Models come in jumps. What there is of them dates from when the newest was made, and not from the look: one of 80
    steps each that is looked at in its first step and in its last is one, and not two.
    """
    ages = {look.tick: look.tick - look.renewed for look in looks}
    first, last = points[0][0], points[-1][0]
    later = ages[first] - ages[last]
    return later if later > first - last else 0
