"""Sawtooths: graphs that a name carried on for many steps and then let go of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torchvet.recording.series import CONTAINERS, Key, Points, size_of

_LONG = 25
"""Steps that a tooth lasts at least: detaching every so many steps is truncated backpropagation through time."""
_LOOKS = 4
"""Points in a row that must rise. Three could be chance."""


@dataclass(frozen=True)
class Tooth:
    """A rise that ended. `run` are the points of the name that a person would say, `ops` the operators that carried."""

    run: Points
    ended: int
    """The tick of the first look that found it let go of."""
    ops: tuple[str, ...]


def teeth_of(series: Mapping[Key, Points], growing: Iterable[Key]) -> dict[Key, Tooth]:
    """Names with such a tooth, without those that grow all the same. A tuple of states is one name."""
    taken = list(growing)
    found: dict[Key, Tooth] = {}
    for key, points in series.items():
        tooth = longest_tooth(points)
        name = _outermost(key, series)
        if tooth and name not in found and not any(name[: len(k)] == k or k[: len(name)] == name for k in taken):
            ended = next(tick for tick, _ in points if tick > tooth[-1][0])
            ticks = {tick for tick, _ in tooth}
            run = [point for point in series[name] if point[0] in ticks]
            found[name] = Tooth(run, ended, tuple(tooth[-1][1].carrier_ops))
    return found


def longest_tooth(points: Points) -> Points:
    """The longest run of points over which a name carried its graph on and its nodes and bytes rose at every look.

    Empty where there is none of some length, and where the run reaches the last point: that is growth as it stands.
    """
    best: Points = []
    run: Points = []
    for point in points:
        now = point[1]
        rises = bool(run) and now.carried and now.nodes > run[-1][1].nodes and size_of(now) > size_of(run[-1][1])
        run = [*run, point] if rises else [point]
        if len(run) > len(best):
            best = run
    long = len(best) >= _LOOKS and best[-1][0] - best[0][0] >= _LONG
    return best if long and best[-1] is not points[-1] else []


def _outermost(key: Key, series: Mapping[Key, Points]) -> Key:
    """The tuple or list that the state is an item of, else the state."""
    while key[:-1] in series and series[key[:-1]][-1][1].container in CONTAINERS:
        key = key[:-1]
    return key
