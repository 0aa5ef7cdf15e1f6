"""What grew during a run, by name: censuses compared, arithmetic only.

A name grows when its bytes (or graph nodes) rise over every census from some point to the last usable one and are
still rising at the end: a cache that fills and stops, and a list that is cleared, do not qualify.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from dataclasses import dataclass, field, replace

from torchvet.recording.reader import RankRecording, restarts
from torchvet.recording.records import Census, Holding, Program, Step, StepKind, Survivors, Window
from torchvet.recording.training_records import Outcome

_STILL = 0.2
"""A last interval that grows slower than this share of the whole says that growth has stopped."""
_SAME = 0.9
"""A child with this share of its parent's growth is where the growth is."""
_FOLLOWS = 0.02
"""A line that leaves less than this share of the variance is what the bytes follow."""
_OUTGROWN = 1.5
"""What grows along a line must have grown by half to be told from batches of different lengths."""
_LONG = 10
"""Steps over which one step more or less changes a rate by a tenth at most."""
_WORTH = 0.05
"""Attributes of one object that grow apart are told apart from this share on."""
_CONTAINERS = {"list", "dict", "set", "tuple", "deque", "defaultdict", "OrderedDict", "Counter"}


@dataclass(frozen=True)
class Growth:
    """One growing name. Rates are per step of `kind`; `holding` is its state at the last census that counts."""

    holding: Holding
    bytes_per_step: float
    direct_per_step: float
    graph_per_step: float
    ctx_per_step: float
    visible_per_step: float
    tensors_per_step: float
    nodes_per_step: float
    first_tick: int
    last_tick: int
    steps: int
    kind: StepKind
    rank: int | None
    carrier_ops: tuple[str, ...]
    """Operators between this name's value and its value of the census before, empty where it does not carry one."""
    last_step: int
    """Steps of `kind` that had passed at the last census that counts."""
    memory_left: int | None
    exhausted_at: int | None
    """The step at which the memory limit would be reached, None where nothing grows by bytes."""

    @property
    def bytes(self) -> int:
        """Bytes that the name reached at the last census that counts."""
        return self.holding.direct + self.holding.graph + self.holding.ctx


@dataclass
class GrowthSummary:
    """All of one rank's growth. `measured` is all bytes per step that were seen to live on, `unreached` those of them
    without a name."""

    growths: list[Growth] = field(default_factory=list)
    measured: float = 0.0
    explained: float = 0.0
    unreached: float = 0.0
    kind: StepKind = "training"

    @property
    def unexplained(self) -> float:
        """Bytes per step that grow and that no name was found for."""
        return max(0.0, self.measured - self.explained)


def growth_of(rank: RankRecording) -> GrowthSummary:
    """Compare a rank's censuses. Nothing to compare is no growth; the report says how much was looked at."""
    usable = usable_censuses(rank)
    summary = GrowthSummary(unreached=unreached_rate(rank))
    summary.measured = summary.unreached
    if len(usable) < 2:
        return summary
    first, last = usable[0], usable[-1]
    kind, steps = _steps_between(rank, first.tick, last.tick)
    summary.kind = kind
    series = _series(usable)
    ends = _sizes_at_the_end(rank, last)
    growing = {key: points for key, points in series.items() if _grows(points, last.tick, ends.get(key))}
    chosen = _localise(growing)
    limit = memory_left(rank, last)
    for key in chosen:
        summary.growths.append(_growth(rank, growing[key], limit, _carrier_ops(key, last)))
    summary.growths.sort(key=lambda g: (-g.bytes_per_step, -g.nodes_per_step))
    by_total = (last.total - first.total) / max(1, steps)
    summary.explained = sum(g.bytes_per_step for g in summary.growths)
    named = max(summary.explained, min(by_total, survival_rate(rank)))
    summary.measured = named + summary.unreached
    return summary


def evaluation_growth(rank: RankRecording) -> list[Growth]:
    """What grew from pass to pass in the middle of evaluations, the largest first.

    Names that live on from evaluation to evaluation grow from step to step as well and are not among them.
    """
    lasting = {_key(g.holding) for g in rank.growth.growths}
    found: dict[tuple[str, ...], Growth] = {}
    amid = [c for c in rank.all(Census) if c.amid and c.complete]
    for first, last in itertools.pairwise(amid):
        if first.amid != last.amid or first.passes >= last.passes:
            continue
        series: dict[tuple[str, ...], Points] = defaultdict(list)
        for census in (first, last):
            for holding in census.holdings:
                series[_key(holding)].append((census.passes, holding))
        growing = {k: p for k, p in series.items() if len(p) == 2 and _rise(*p) > 0 and p[1][1].nodes > p[0][1].nodes}
        for key in _localise(growing):
            run = growing[key]
            per = run[-1][0] - run[0][0]
            found[key] = _rates(
                rank, run, "evaluation", per, now=last.passes, left=memory_left(rank, last), ops=_carrier_ops(key, last)
            )
    return sorted((g for k, g in found.items() if k not in lasting), key=lambda g: -g.bytes_per_step)


def outlives_evaluation(rank: RankRecording, growth: Growth) -> bool:
    """Whether what one evaluation left under a name was still there in the next."""
    key = _key(growth.holding)
    amid = [(c.amid, _size(h)) for c in rank.all(Census) if c.amid for h in c.holdings if _key(h) == key]
    return any(a[0] != b[0] and 0 < a[1] <= b[1] for a, b in itertools.pairwise(amid))


def searched(rank: RankRecording) -> Census | None:
    """The last census, taken while the program's names were there, that found storages without a name."""
    return next((c for c in reversed(usable_censuses(rank)) if c.unreached), None)


def unreached_rate(rank: RankRecording) -> float:
    """Bytes per step that live on although no name leads to them, from the last census that searched for them."""
    census = searched(rank)
    if census is None:
        return 0.0
    steps = {s.window: s.steps for s in rank.since_restart(Survivors) if s.tick <= census.tick}
    return census.unreached / max(1, sum(steps.values()))


def usable_censuses(rank: RankRecording) -> list[Census]:
    """The censuses that compare: all but a last look at a program whose `main()` had already let go."""
    censuses = [c for c in rank.since_restart(Census) if not c.amid]
    found = [c for c in censuses if c.complete] or censuses
    outcome = rank.last(Outcome)
    if len(found) > 1 and found[-1].final and (outcome is None or outcome.how in ("finished", "exit", "os-exit")):
        before = {_key(h) for h in found[-2].holdings}
        after = {_key(h) for h in found[-1].holdings}
        if not before <= after and found[-1].total < found[-2].total:
            found = found[:-1]
    # The last look comes after the last boundary: what the rest of that step stored would count for no step. Over a
    # long stretch that makes no difference.
    if len(found) > 3 and found[-1].final and found[-1].tick - found[-2].tick < _LONG:
        found = found[:-1]
    unique: dict[int, Census] = {c.tick: c for c in reversed(found)}
    ordered = [unique[t] for t in sorted(unique)]
    # Which names last and which carry a graph is known from the second census on: the first may credit others.
    return ordered[1:] if len(ordered) > 2 else ordered


def survival_rate(rank: RankRecording) -> float:
    """Bytes per step that outlive their step for good: the median over windows of what is alive at their last check.

    Zero unless storages of the last windows live on too: what filled once and stopped is not growth.
    """
    latest: dict[int, Survivors] = {}
    for record in rank.since_restart(Survivors):
        latest[record.window] = record
    rates = [s.bytes / s.steps for _, s in sorted(latest.items()) if s.steps]
    if len(rates) < 2 or rates[-1] == 0 or min(rates) == 0:
        return 0.0
    return statistics.median(rates)


def memory_left(rank: RankRecording, census: Census) -> int | None:
    """Bytes between what was in use at a census (or the highest peak seen) and the memory limit."""
    program: Program | None = rank.program
    if program is None or not program.memory_limit:
        return None
    in_use = max([census.total, *(w.peak for w in rank.all(Window))])
    return max(0, program.memory_limit - in_use)


def _key(holding: Holding) -> tuple[str, ...]:
    return (holding.scope, *holding.path)


Points = list[tuple[int, Holding]]


def _series(censuses: list[Census]) -> dict[tuple[str, ...], Points]:
    series: dict[tuple[str, ...], Points] = defaultdict(list)
    for census in censuses:
        for holding in census.holdings:
            series[_key(holding)].append((census.tick, holding))
    return series


def _size(h: Holding) -> int:
    return h.direct + h.graph + h.ctx


def _sizes_at_the_end(rank: RankRecording, last: Census) -> dict[tuple[str, ...], int]:
    """What names that are still there after the program's end hold then, in bytes."""
    final = next((c for c in reversed(rank.all(Census)) if c.final), None)
    return {_key(h): _size(h) for h in final.holdings} if final is not None and final.tick > last.tick else {}


def _grows(points: Points, last: int, at_the_end: int | None) -> bool:
    if points[-1][0] != last:
        return False
    run = rising_tail(points)
    if len(run) < 2:
        return False
    if run[-1][1].tensors <= run[0][1].tensors and run[-1][1].nodes <= run[0][1].nodes:
        # The same tensors, larger: a batch of another length looks so too, until it has gone on for a while or the
        # sizes lie on a line.
        straight = _misfit([float(t) for t, _ in run], [float(_size(h)) for _, h in run]) < _FOLLOWS / 10
        return len(run) >= 5 or (len(run) >= 3 and straight and _size(run[-1][1]) >= _OUTGROWN * _size(run[0][1]))
    if len(run) >= 3:
        return True
    # Two points must lie some steps apart and show more than one store (a loader has a batch more ready now and then),
    # and what is left of it after the end must not have shrunk.
    (first, a), (then, b) = run
    stores = max(b.tensors - a.tensors, b.nodes - a.nodes)
    return then - first >= 3 and stores > 1 and (at_the_end is None or at_the_end >= _size(b))


def rising_tail(points: Points) -> Points:
    """The longest run of points at the end over which bytes (or nodes and tensors) never fall and still rise."""
    run = [points[-1]]
    for point in reversed(points[:-1]):
        later = run[0][1]
        if _size(point[1]) > _size(later) or point[1].nodes > later.nodes + later.nodes // 4:
            break
        run.insert(0, point)
    if len(run) < len(points) and len(points) - len(run) > 0:
        # It fell before: the contents are dropped now and then. Growth only if it passed its former height.
        highest = max(_size(h) for _, h in points[: len(points) - len(run)])
        if _size(points[-1][1]) <= highest * 1.5:
            return run[-1:]
    while len(run) > 1 and _rise(run[0], run[1]) == 0:
        run.pop(0)
    if len(run) < 2:
        return run
    whole = _rise(run[0], run[-1])
    tail = _rise(run[-2], run[-1])
    return run if whole > 0 and tail >= _STILL * whole else run[-1:]


def _rise(a: tuple[int, Holding], b: tuple[int, Holding]) -> float:
    """Per tick: bytes, or nodes and tensors where bytes stand still."""
    ticks = max(1, b[0] - a[0])
    change = _size(b[1]) - _size(a[1])
    if change <= 0:
        change = max(b[1].nodes - a[1].nodes, 0)
    return change / ticks


def _localise(growing: dict[tuple[str, ...], Points]) -> list[tuple[str, ...]]:
    """From every growing root down to the name where the growth gathers."""
    chosen: list[tuple[str, ...]] = []
    roots = [k for k in growing if k[:-1] not in growing]
    for root in roots:
        chosen.extend(_descend(root, growing))
    return chosen


def _descend(key: tuple[str, ...], growing: dict[tuple[str, ...], Points]) -> list[tuple[str, ...]]:
    total = _total_rise(growing[key])
    holding = growing[key][-1][1]
    children = {k: _total_rise(p) for k, p in growing.items() if k[:-1] == key}
    main = max(children, key=lambda k: children[k], default=None)
    is_container = holding.container in _CONTAINERS
    if main is not None and children[main] >= _SAME * total:
        child = growing[main][-1][1]
        # The one item that grows (a callback among callbacks, a list in a dict) is the better name; a tensor is not.
        if not is_container or child.container in _CONTAINERS or not main[-1].startswith("[") or child.items > 0:
            return _descend(main, growing)
        return [key]
    if is_container or not children:
        return [key]
    parts = [k for k in children if children[k] >= _WORTH * total]
    return [found for k in parts for found in _descend(k, growing)] or [key]


def _total_rise(points: Points) -> float:
    run = rising_tail(points)
    return _rise(run[0], run[-1]) if len(run) > 1 else 0.0


def _carrier_ops(key: tuple[str, ...], census: Census) -> tuple[str, ...]:
    below = (h for h in census.holdings if h.carried and _key(h)[: len(key)] == key)
    return next((tuple(h.carrier_ops) for h in below), ())


def _growth(rank: RankRecording, points: Points, left: int | None, carrier_ops: tuple[str, ...]) -> Growth:
    run = rising_tail(points)
    kind, steps = _steps_between(rank, run[0][0], run[-1][0])
    per = _steps_of_bursts(rank, run, kind) or max(1, steps)
    growth = _rates(rank, run, kind, per, _steps_until(rank, run[-1][0], kind), left, carrier_ops)
    return replace(growth, steps=steps)


def _rates(rank: RankRecording, run: Points, kind: StepKind, per: float, now: int, left: int | None,
           ops: tuple[str, ...]) -> Growth:  # fmt: skip
    """The rise over a run of points as rates: `per` is the steps that it stands for, `now` those up to its end."""
    (first, a), (last, b) = run[0], run[-1]
    rate = (_size(b) - _size(a)) / per
    exhausted = int(now + left / rate) if left is not None and rate > 0 else None
    return Growth(
        holding=b, bytes_per_step=rate, direct_per_step=(b.direct - a.direct) / per,
        graph_per_step=(b.graph - a.graph) / per, ctx_per_step=(b.ctx - a.ctx) / per,
        visible_per_step=(b.visible - a.visible) / per, tensors_per_step=(b.tensors - a.tensors) / per,
        nodes_per_step=(b.nodes - a.nodes) / per, first_tick=first, last_tick=last, steps=round(per), kind=kind,
        rank=rank.program.rank if rank.program else None, exhausted_at=exhausted,
        last_step=now, memory_left=left, carrier_ops=ops,
    )  # fmt: skip


def _steps_between(rank: RankRecording, first: int, last: int) -> tuple[StepKind, int]:
    """The kind of step that a rate goes by, and how many of it lie between two ticks.

    Training steps where there are any between the two, else whatever there is.
    """
    counts: dict[StepKind, int] = defaultdict(int)
    for step in current_steps(rank):
        if first < step.n <= last:
            counts[step.kind] += step.count
    for kind in ("manual", "training", "backward"):
        if counts.get(kind):
            return kind, counts[kind]
    if not counts:
        return "training", max(1, last - first)
    kind = max(counts, key=lambda k: counts[k])
    return kind, counts[kind]


def _steps_of_bursts(rank: RankRecording, run: Points, kind: StepKind) -> float | None:
    """How many steps of `kind` the rise stands for where it follows the evaluation steps and not those; else None.

    An evaluation after every epoch stores in bursts: between two looks there may be three of them or four, whatever
    the training steps between. What evaluation steps stored is spread over the run at the run's own proportion.
    """
    whole = _steps_until(rank, current_steps(rank)[-1].n, "evaluation") if current_steps(rank) else 0
    if kind == "evaluation" or not whole or len(run) < 3:
        return None
    sizes = [float(_size(h)) for _, h in run]
    trained = [float(_steps_until(rank, tick, kind)) for tick, _ in run]
    evaluated = [float(_steps_until(rank, tick, "evaluation")) for tick, _ in run]
    if not _misfit(evaluated, sizes) < min(_FOLLOWS, _misfit(trained, sizes) / 2):
        return None
    of_run = _steps_until(rank, current_steps(rank)[-1].n, kind)
    return (evaluated[-1] - evaluated[0]) * of_run / whole


def _misfit(steps: list[float], sizes: list[float]) -> float:
    """The share of the sizes' variance that a straight line over the steps leaves; 1 where there is no line."""
    if min(steps) == max(steps) or min(sizes) == max(sizes):
        return 1.0
    return 1.0 - statistics.correlation(steps, sizes) ** 2


def _steps_until(rank: RankRecording, tick: int, kind: StepKind) -> int:
    return sum(s.count for s in current_steps(rank) if s.n <= tick and s.kind == kind)


def current_steps(rank: RankRecording) -> list[Step]:
    """Step records since the clock last started anew (a stronger step signal appeared)."""
    steps = rank.all(Step)
    start = 0
    for index in range(1, len(steps)):
        if restarts(steps[index - 1], steps[index]):
            start = index
    return steps[start:]
