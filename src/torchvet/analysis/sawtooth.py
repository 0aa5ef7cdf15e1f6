"""Sawtooths: graphs that a name carried on for many steps and then freed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torchvet.analysis.growth_series import CONTAINERS, Key, Points, size_of

_LONG = 25
"""Steps that a tooth lasts at least: detaching every so many steps is truncated backpropagation through time."""
_LOOKS = 4
"""Points in a row that must rise. Three could be chance."""
_STEADY = 1.1
"""Rates that differ by no more than a tenth are one."""


@dataclass(frozen=True)
class Tooth:
    """A rise that ended. `run` are the points of the name that a person would say, `ops` the operators that carried."""

    run: Points
    ended: int
    """The tick of the first look that found it freed."""
    ops: tuple[str, ...]


def teeth_of(series: Mapping[Key, Points], growing: Iterable[Key]) -> dict[Key, Tooth]:
    """Names with such a tooth, without those that grow all the same. A tuple of states is one name."""
    taken = list(growing)
    found: dict[Key, Tooth] = {}
    for key, points in series.items():
        tooth = longest_tooth(points)
        name = _outermost(key, series)
        # Neither a part of what grows nor a holder of it: that finding says it all.
        if tooth and name not in found and not any(name[: len(k)] == k or k[: len(name)] == name for k in taken):
            ended = next(tick for tick, _ in points if tick > tooth[-1][0])
            ticks = {tick for tick, _ in tooth}
            # The outer name's own sizes at the same looks.
            run = [point for point in series[name] if point[0] in ticks]
            found[name] = Tooth(run, ended, tuple(tooth[-1][1].carrier_ops))
    return found


def longest_tooth(points: Points) -> Points:
    """The longest run of points over which a name carried its graph on and its nodes and bytes rose at every look.

    Empty where there is none of some length, and where the run reaches the last point: that is growth as it stands.
    """
    # The longest by looks; one with fewer would be weaker evidence of the same.
    best = max(_rises(points), key=len, default=[])
    long = len(best) >= _LOOKS and _reach(best) >= _LONG
    # By identity: equal points may occur twice.
    return best if long and best[-1] is not points[-1] else []


def carried_for_long(series: Mapping[Key, Points]) -> bool:
    """Whether a graph was carried on for that many steps, even if there were too few looks to judge by."""
    runs = [run for points in series.values() for run in _rises(points)]
    return any(_steadily(run) is not None and _reach(run) >= _LONG for run in runs)


def _rises(points: Points) -> Iterator[Points]:
    run: Points = []
    for point in points:
        now = point[1]
        rises = bool(run) and now.carried and now.nodes > run[-1][1].nodes and size_of(now) > size_of(run[-1][1])
        if run and not rises:
            yield run
        run = [*run, point] if rises else [point]
    if run:
        yield run


def _steadily(run: Points) -> float | None:
    """Nodes that each tick added to a graph, where that was the same all the time: then it was never cut in between."""
    added = [(b.nodes - a.nodes) / (then - now) for (now, a), (then, b) in itertools.pairwise(run)]
    # One interval alone is always as steady as itself.
    return max(added) if len(added) > 1 and max(added) <= _STEADY * min(added) else None


def _reach(run: Points) -> float:
    """Ticks that the graph at the last of some points goes back: before the first of them, which may be late, where all
    of its nodes tell."""
    (first, _), (last, graph) = run[0], run[-1]
    added = _steadily(run)
    # Never before the run's beginning: the first step's graph may have more nodes than others.
    return last - first if added is None else min(last, max(last - first, graph.nodes / added))


def _outermost(key: Key, series: Mapping[Key, Points]) -> Key:
    """The tuple or list that the state is an item of, else the state."""
    while key[:-1] in series and series[key[:-1]][-1][1].container in CONTAINERS:
        key = key[:-1]
    return key
