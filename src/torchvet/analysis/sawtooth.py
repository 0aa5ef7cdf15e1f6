"""Sawtooths: what rises for many steps and is then freed.

Graphs that a name carried on are one kind, graphs that a container kept are another. Either makes a peak that detaching
would spare. What is filled anew after it was freed, graphs or not, explains a heap that rises for a while.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchvet.analysis.growth_series import CONTAINERS, STORES, Key, Points, localise, nothing_at, size_of
from torchvet.recording.records.base import Holding

Rises = Callable[[Holding, Holding], bool]
"""Whether a name has risen in the way that is asked for, by its states at one look and at the next."""

_LONG = 25
"""Steps that a tooth lasts at least: detaching every so many steps is truncated backpropagation through time."""
_LOOKS = 4
"""Points in a row that must rise. Three could be chance."""
_SAVED = 0.25
"""Share of what a container has gained that graphs saved, from which on it is a store of graphs."""
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
        if tooth and name not in found and not any(_related(name, one) for one in taken):
            ended = next(tick for tick, _ in points if tick > tooth[-1][0])
            ticks = {tick for tick, _ in tooth}
            # The outer name's own sizes at the same looks.
            run = [point for point in series[name] if point[0] in ticks]
            found[name] = Tooth(run, ended, tuple(tooth[-1][1].carrier_ops))
    return found


def piles_of(series: Mapping[Key, Points], growing: Iterable[Key], looks: Sequence[int]) -> dict[Key, Tooth]:
    """Names that kept graph after graph, of none of which they made the next, and then let all of them go. `looks` are
    the ticks of all looks: a name that is empty is at none."""
    taken = list(growing)
    runs = {key: longest_tooth([*points, *_gone(points, looks)], _piles) for key, points in series.items()}
    found = {}
    for key in localise({key: run for key, run in runs.items() if run}):
        run = runs[key]
        ended = next(tick for tick in looks if tick > run[-1][0])
        if not any(_related(key, one) for one in taken):
            found[key] = Tooth(run, ended, ())
    return found


def refilled(series: Mapping[Key, Points], growing: Iterable[Key], last: int) -> dict[Key, Points]:
    """Names that have been emptied and take in tensors again up to the look at tick `last`: the points of that rise.
    Neither parts of what grows nor holders of it."""
    taken = list(growing)
    found = {key: run for key, points in series.items() if (run := _refill(points)) and points[-1][0] == last}
    outermost = (key for key in found if key[:-1] not in found)
    return {key: found[key] for key in outermost if not any(_related(key, one) for one in taken)}


def _refill(points: Points) -> Points:
    """The rise at the end of what held twice as much before as at the rise's beginning; empty where there is none."""
    run = points[-1:]
    for point in reversed(points[:-1]):
        if size_of(point[1]) > size_of(run[0][1]):
            break
        run.insert(0, point)
    (_, first), (_, now) = run[0], run[-1]
    before = max((size_of(held) for _, held in points[: len(points) - len(run)]), default=0)
    # Of as many tensors as before that are larger, as batches are, nobody knows whether they go on.
    stores = max(now.tensors - first.tensors, now.nodes - first.nodes)
    return run if before >= 2 * size_of(first) and stores >= STORES else []


def _related(key: Key, other: Key) -> bool:
    return key[: len(other)] == other or other[: len(key)] == key


def _gone(points: Points, looks: Sequence[int]) -> Points:
    """The look that no longer has a name, as a point at which it holds nothing."""
    after = [tick for tick in looks if tick > points[-1][0]]
    return [nothing_at(after[0], points[-1][1])] if after else []


def _carries(before: Holding, now: Holding) -> bool:
    return now.carried and now.nodes > before.nodes and size_of(now) > size_of(before)


def _piles(before: Holding, now: Holding) -> bool:
    gained = size_of(now) - size_of(before)
    return not now.carried and now.nodes > before.nodes and now.graph - before.graph >= _SAVED * gained > 0


def longest_tooth(points: Points, rises: Rises = _carries) -> Points:
    """The longest run of points over which a name carried its graph on, and its nodes and bytes rose at every look; or
    over which it `rises` in another way.

    Empty where there is none of some length, and where the run reaches the last point: that is growth as it stands.
    """
    # The longest by looks; one with fewer would be weaker evidence of the same.
    best = max(_rises(points, rises), key=len, default=[])
    long = len(best) >= _LOOKS and _reach(best) >= _LONG
    # By identity: equal points may occur twice.
    return best if long and best[-1] is not points[-1] else []


def carried_for_long(series: Mapping[Key, Points]) -> bool:
    """Whether a graph was carried on for that many steps, even if there were too few looks to judge by."""
    runs = [run for points in series.values() for run in _rises(points)]
    return any(_steadily(run) is not None and _reach(run) >= _LONG for run in runs)


def _rises(points: Points, rises: Rises = _carries) -> Iterator[Points]:
    run: Points = []
    for point in points:
        goes_on = bool(run) and rises(run[-1][1], point[1])
        if run and not goes_on:
            yield run
        run = [*run, point] if goes_on else [point]
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
