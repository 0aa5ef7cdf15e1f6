"""One name's bytes over the censuses of a run: does it still rise, and at which name does the rise gather?"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from torchvet.recording.records.base import Census, Holding

_STILL = 0.2
"""A last interval that grows slower than this share of the whole says that growth has stopped."""
_SAME = 0.9
"""A child with this share of its parent's growth is where the growth is."""
FOLLOWS = 0.02
"""A line that leaves less than this share of the variance is what the bytes follow."""
_OUTGROWN = 1.5
"""What grows along a line must have grown by half to be told from batches of different lengths."""
STORES = 8
"""Tensors or nodes more from which on two points are enough however far apart."""
_EMPTIED = 4
"""Points of a rise from nothing, where there was something before, from which on it is no tooth."""
_MAIN = 0.75
"""Share of what a container has gained that one item must have gained in its time to be what grows."""
_WORTH = 0.05
"""Attributes of one object that grow apart are told apart from this share on."""
CONTAINERS = {"list", "dict", "set", "tuple", "deque", "defaultdict", "OrderedDict", "Counter"}

Key = tuple[str, ...]
"""A name across censuses: its scope and the hops of its path."""
Points = list[tuple[int, Holding]]
"""Tick and state of one name at each census that saw it."""


def key_of(holding: Holding) -> Key:
    """What tells a name from others in every census."""
    return (holding.scope, *holding.path)


def size_of(h: Holding) -> int:
    """All bytes that hang from a name."""
    return h.direct + h.graph + h.ctx


_LEAST_LOOKS, _SLOWER = 4, 0.5
"""Looks below which nothing is said of how a rate changes, and the share of its rate that a rise must have lost from
the second fourth to the last. Chosen: what takes in the same at each step differs by a few hundredths."""


def slowing(sizes: list[tuple[int, int]]) -> tuple[float, float] | None:
    """Bytes per step in the second and in the last fourth of a rise, given as steps and bytes, where each from there on
    rises more slowly than the one before, and the last by half at the most: what fills up, as a set of all that was
    recognized so far. None where that is not so."""
    if len(sizes) < _LEAST_LOOKS or sizes[-1][0] - sizes[0][0] < 4:
        return None
    first, fourth = sizes[0][0], (sizes[-1][0] - sizes[0][0]) / 4
    held = [_between(sizes, first + i * fourth) for i in range(5)]
    rates = [(b - a) / fourth for a, b in itertools.pairwise(held)]
    # Not the first: a name may have been seen for the first time in the middle of one.
    falls = rates[1] > rates[2] > rates[3]
    return (rates[1], rates[3]) if falls and rates[3] <= _SLOWER * rates[1] else None


def _between(sizes: list[tuple[int, int]], step: float) -> float:
    """The bytes at a step, on the line between the looks around it."""
    for (a, held), (b, then) in itertools.pairwise(sizes):
        if a <= step <= b and a < b:
            return held + (then - held) * (step - a) / (b - a)
    return sizes[-1][1]


def beside_known(h: Holding) -> int:
    """Bytes that hang from a name and are in no category of known memory."""
    return size_of(h) - h.idle


def series_of(censuses: list[Census], *, by_pass: bool = False) -> dict[Key, Points]:
    """The points of every name; `by_pass` takes an evaluation's passes for ticks."""
    series: dict[Key, Points] = defaultdict(list)
    for census in censuses:
        for holding in census.holdings:
            # By name and not by object: `losses` is the same list or, after `losses = losses + [x]`,
            # another.
            series[key_of(holding)].append((census.passes if by_pass else census.tick, holding))
    return series


def nothing_at(tick: int, like: Holding) -> tuple[int, Holding]:
    """A name as the point at which it held nothing."""
    empty = dict.fromkeys(("direct", "idle", "visible", "graph", "ctx", "nodes", "tensors"), 0)
    return tick, msgspec.structs.replace(like, **empty, length=None)


def with_gaps(series: Mapping[Key, Points], looks: Sequence[Census]) -> dict[Key, Points]:
    """The points of every name; between two of them a look that has no such name, and memory as much less, as one at
    which it held nothing: the list of an evaluation that is over, before that of the next."""
    totals = {look.tick: look.total for look in looks}
    found = {}
    for key, points in series.items():
        filled = points[:1]
        for before, after in itertools.pairwise(points):
            most = totals[before[0]] - size_of(before[1]) / 2
            # Under another name it would be in the total all the same.
            gone = (t for t, total in totals.items() if before[0] < t < after[0] and total <= most < totals[before[0]])
            filled += [nothing_at(tick, before[1]) for tick in gone][:1]
            filled.append(after)
        found[key] = filled
    return found


def grows(points: Points, last: int, at_the_end: int | None = None, few: bool = True) -> bool:
    """Whether a name's bytes rise up to the census at tick `last`. `at_the_end` is what was left of it after the
    program's end; `few` says whether two points may be enough."""
    # A name that is gone does not grow, whatever it did.
    if points[-1][0] != last:
        return False
    run = rising_tail(points)
    if len(run) < 2:
        return False
    # As many tensors as before that are larger: a batch, or a tensor that `torch.cat` extends.
    if no_more(run):
        return _swells(run)
    if len(run) >= 3:
        return True
    # Two points must lie some steps apart and show more stores than the tensors of a batch (a loader has one more ready
    # now and then) or one in every second step, and what is left of it after the end must not have shrunk.
    (first, a), (then, b) = run
    stores = max(b.tensors - a.tensors, b.nodes - a.nodes)
    enough = stores >= min(STORES, max(2, (then - first) / 2))
    return few and then - first >= 3 and enough and (at_the_end is None or at_the_end >= size_of(b))


def _swells(run: Points) -> bool:
    # The same tensors, larger: a batch of another length looks so too, until it has gone on for a while or the sizes
    # lie on a line.
    straight = misfit([float(t) for t, _ in run], [float(size_of(h)) for _, h in run]) < FOLLOWS / 10
    return len(run) >= 5 or (len(run) >= 3 and straight and size_of(run[-1][1]) >= _OUTGROWN * size_of(run[0][1]))


def no_more(run: Points) -> bool:
    """Whether no tensor and no node came to those that a name has: they are larger."""
    return run[-1][1].tensors <= run[0][1].tensors and run[-1][1].nodes <= run[0][1].nodes


def rising_tail(points: Points) -> Points:
    """The longest run of points at the end over which bytes (or nodes and tensors) never fall and still rise."""
    run = [points[-1]]
    for point in reversed(points[:-1]):
        later = run[0][1]
        # A graph's number of nodes varies a little with the batch; bytes of what is stored must not fall.
        if size_of(point[1]) > size_of(later) or point[1].nodes > later.nodes + later.nodes // 4:
            break
        # `run` stays in the order of time.
        run.insert(0, point)
    if len(run) < len(points):
        # It fell before: the contents are dropped now and then. Growth only if it passed its former height.
        highest = max(size_of(h) for _, h in points[: len(points) - len(run)])
        # Half above: the height of such teeth varies with when the look comes. By far more where it was emptied: then
        # it is to rise over several looks.
        emptied = size_of(run[0][1]) == 0 and len(run) < _EMPTIED
        if emptied or size_of(points[-1][1]) <= highest * 1.5:
            return run[-1:]
    # A leak that starts late is measured from there: with the flat beginning its rate would be too low.
    while len(run) > 1 and rise(run[0], run[1]) == 0:
        run.pop(0)
    if len(run) < 2:
        return run
    whole = rise(run[0], run[-1])
    tail = rise(run[-2], run[-1])
    # One point alone is no growth to any caller.
    return run if whole > 0 and tail >= _STILL * whole else run[-1:]


def rise(a: tuple[int, Holding], b: tuple[int, Holding]) -> float:
    """Per tick: bytes, or nodes and tensors where bytes stand still."""
    ticks = max(1, b[0] - a[0])
    change = size_of(b[1]) - size_of(a[1])
    if change <= 0:
        # Graphs of scalars: hardly a byte of tensors, and node after node.
        change = max(b[1].nodes - a[1].nodes, 0)
    return change / ticks


def localise(growing: dict[Key, Points]) -> list[Key]:
    """From every growing root down to the name where the growth gathers."""
    chosen: list[Key] = []
    # A key less its last hop is the holder's: what hangs from a growing one is reached from it.
    roots = [k for k in growing if k[:-1] not in growing]
    for root in roots:
        chosen.extend(_unlinked(key, growing) for key in _descend(root, growing))
    # Two roots may lead to one name through `_unlinked`.
    return list(dict.fromkeys(chosen))


def _unlinked(key: Key, growing: dict[Key, Points]) -> Key:
    """A chain of links is named by its first: `last.prev`, however many more `.prev` lead to what grows."""
    # Attributes alone: `[0][0]` are items of nested lists and no links.
    while len(key) > 2 and key[-1] == key[-2] and key[-1].startswith(".") and key[:-1] in growing:
        key = key[:-1]
    return key


def _descend(key: Key, growing: dict[Key, Points]) -> list[Key]:
    total = _total_rise(growing[key])
    children = {k: _total_rise(p) for k, p in growing.items() if k[:-1] == key}
    main = max(children, key=lambda k: children[k], default=None)
    is_container = growing[key][-1][1].container in CONTAINERS
    # Not all of it: the holder itself has some bytes that come and go.
    if main is not None and children[main] >= _SAME * total:
        return _descend(main, growing) if _names_better(main, key, growing, is_container) else [key]
    # A dictionary that grows in all its lists is one leak; attributes of an object that grow apart are several.
    if is_container or not children:
        return [key]
    parts = [k for k in children if children[k] >= _WORTH * total]
    # None that is worth it: many small ones, whose common name is the holder's.
    return [found for k in parts for found in _descend(k, growing)] or [key]


def _names_better(child: Key, key: Key, growing: dict[Key, Points], in_container: bool) -> bool:
    """Whether the one part of a holder that grows is the better name for the growth than the holder."""
    if not in_container:
        return True
    if _gained(growing[child]) < _MAIN * _gained(growing[key]):
        return False  # one item after another grew, as the list of each epoch in turn
    # The one item that grows (a callback among callbacks, a list in a dict) is the better name; a tensor is not.
    held = growing[child][-1][1]
    return held.container in CONTAINERS or not child[-1].startswith("[") or held.items > 0


def _gained(points: Points) -> int:
    """Bytes that came over the last rise."""
    run = rising_tail(points)
    return size_of(run[-1][1]) - size_of(run[0][1])


def _total_rise(points: Points) -> float:
    run = rising_tail(points)
    return rise(run[0], run[-1]) if len(run) > 1 else 0.0


def misfit(steps: list[float], sizes: list[float]) -> float:
    """The share of the sizes' variance that a straight line over the steps leaves; 1 where there is no line."""
    # `statistics.correlation` raises for constants.
    if min(steps) == max(steps) or min(sizes) == max(sizes):
        return 1.0
    return 1.0 - statistics.correlation(steps, sizes) ** 2
