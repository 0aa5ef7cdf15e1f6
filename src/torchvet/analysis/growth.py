"""What grew during a run, by name: censuses compared, arithmetic only.

A name grows when its bytes (or graph nodes) rise over every census from some point to the last usable one and are
still rising at the end: a cache that fills and stops, and a list that is cleared, do not qualify.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import msgspec

from torchvet.analysis.growth_series import (
    Key,
    Points,
    grows,
    key_of,
    localise,
    no_more,
    rise,
    rising_tail,
    series_of,
    size_of,
    slowing,
    with_gaps,
)
from torchvet.analysis.idle_models import is_of_models, later_by, pile_up, with_beginnings
from torchvet.analysis.memory_limit import memory_left
from torchvet.analysis.sawtooth import Tooth, piles_of, refilled, teeth_of
from torchvet.analysis.steps import steps_between, steps_of_bursts, steps_until
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.base import NODE_BYTES, Census, Holding, Source, StepKind, Survivors
from torchvet.recording.records.training import Outcome

_LONG = 10
"""Steps over which one step more or less changes a rate by a tenth at most."""


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
    idle_per_step: float = 0.0
    """Of the direct bytes, those of models that are not trained, or not any more."""
    partial: bool = False
    """Whether the searches ran out of time: the bytes are what was reached, the name may hold more."""
    length_before: int | None = None
    """Items of the container at the beginning of the rise, where it is one."""
    dropped_at: int | None = None
    """The tick by which the name had freed it all again, None where it never did."""
    slows: tuple[float, float] | None = None
    """Bytes per step in the second and in the last fourth of the rise, where it gets ever slower: see `slowing`."""
    parts: tuple[Growth, ...] = ()
    """The growths of single names, this name's first, where this one is their sum: see rules/shared/joint_growth.py."""

    @property
    def bytes(self) -> int:
        """Bytes that the name reached at the last census that counts."""
        return self.holding.direct + self.holding.graph + self.holding.ctx


@dataclass
class GrowthSummary:
    """All of one rank's growth. `measured` is all bytes per step that were seen to live on, `unreached` those of them
    without a name."""

    growths: list[Growth] = field(default_factory=list)
    dropped: list[Growth] = field(default_factory=list)
    """Graphs that were carried on, or kept, over many steps and then freed: a sawtooth, by epoch as a rule."""
    measured: float = 0.0
    explained: float = 0.0
    unreached: float = 0.0
    refilled: list[Growth] = field(default_factory=list)
    """Names that rise at the run's end and had been emptied before: no growth, and yet the heap rises by them."""
    kind: StepKind = "training"

    @property
    def unexplained(self) -> float:
        """Bytes per step that grow and that no name was found for."""
        return max(0.0, self.measured - self.explained)


_COMPARED: WeakKeyDictionary[RankRecording, GrowthSummary] = WeakKeyDictionary()
"""What was computed before: many rules ask about one rank, and nothing changes what was read."""


def growth_of(rank: RankRecording) -> GrowthSummary:
    """What grew in a rank."""
    if rank not in _COMPARED:
        _COMPARED[rank] = compared(rank)
    return _COMPARED[rank]


def compared(rank: RankRecording) -> GrowthSummary:
    """What grew between a rank's censuses. Nothing to compare is no growth; the report says how much was sampled."""
    # Needs two: what a single one shows may be anything from a cache to the model.
    usable = usable_censuses(rank)
    summary = GrowthSummary(unreached=unreached_rate(rank))
    survived = survival_rate(rank)
    summary.measured = max(summary.unreached, survived)
    if len(usable) < 2:
        return summary
    first, last = usable[0], usable[-1]
    kind, steps = steps_between(rank, first.tick, last.tick)
    summary.kind = kind
    series = with_beginnings(with_gaps(series_of(usable), usable), usable)
    growing = _growing(rank, usable, series, survived)
    # After `localise`, as the holder may be renewed and an item of it not.
    chosen = [key for key in localise(growing) if not _is_renewed(rank, growing[key], survived)]
    limit = memory_left(rank, last)
    for key in chosen:
        growth = _growth(rank, growing[key], limit, _carrier_ops(key, last), usable)
        # A search that is cut short has been cut in the graphs: it walks these last.
        partial = not last.complete and growth.graph_per_step > 0.5 * growth.bytes_per_step
        summary.growths.append(replace(growth, partial=partial))
    summary.growths.sort(key=lambda g: (-g.bytes_per_step, -g.nodes_per_step))
    looks = [c.tick for c in usable]
    teeth = teeth_of(series, chosen) | piles_of(series, chosen, looks)
    summary.dropped = [_dropped(rank, tooth) for tooth in teeth.values()]
    again = refilled(series, chosen, last.tick)
    summary.refilled = [_growth(rank, points, None, (), usable) for points in again.values()]
    # Names may share storages, so their sum can exceed it; it is a bound for what survivors say, not for names.
    by_total = (last.total - first.total) / max(1, steps)
    summary.explained = sum(g.bytes_per_step for g in summary.growths)
    named = max(summary.explained, min(by_total, max(survived, survival_rate(rank, final=False))))
    summary.measured = named + summary.unreached
    return summary


def _growing(
    rank: RankRecording, usable: list[Census], series: dict[Key, Points], survived: float
) -> dict[Key, Points]:
    """The names that grow from census to census, and what they held at each."""
    last = usable[-1]
    ends = _sizes_at_the_end(rank, last)
    # What is collected once training is over is no growth: a last look after the end needs storages of steps that live.
    few = not (last.final and ended_by_itself(rank)) or survived > 0
    looks = {c.tick: c for c in usable}
    before = _before(rank, usable[0])

    def goes_on(key: Key, points: Points) -> bool:
        two = few and _two_may_do(points, before.get(key, []), {} if survived else looks)
        return grows(points, last.tick, ends.get(key), two) and (not is_of_models(points) or pile_up(points))

    growing = {key: points for key, points in series.items() if goes_on(key, points)}
    # Survivors are counted without any search: where they grow, something does.
    if survived or all(c.complete for c in usable):
        return growing
    # A search that ran out of time reaches more or fewer objects each time, which looks like growth.
    return {key: points for key, points in growing.items() if _certain(rising_tail(points))}


def _before(rank: RankRecording, first: Census) -> dict[Key, Points]:
    """What names held at the looks before the first one that compares."""
    return series_of([c for c in rank.since_restart(Census) if not c.amid and c.complete and c.tick < first.tick])


def _two_may_do(points: Points, before: Points, looks: Mapping[int, Census]) -> bool:
    """Whether a rise over two looks alone counts: it is no name's that had more `before`, nor one of names that take
    turns, which the `looks` show."""
    return not _falls(before, points[0]) and not (looks and _taken_over(points, looks))


def _falls(before: Points, first: tuple[int, Holding]) -> bool:
    """Whether a name had more at an earlier look, of a longer graph: it goes up and down with the batches."""
    return any(size_of(held) > size_of(first[1]) and held.nodes > first[1].nodes for _, held in before)


def _is_renewed(rank: RankRecording, points: Points, survived: float) -> bool:
    """Whether a name has only something larger each time that owes nothing to what it had before: batches that get
    longer over the run."""
    holding, run = points[-1][1], rising_tail(points)
    if no_more(run):
        return _passes_through(rank, holding) or rank.index.is_renewed(*holding.where)
    # Longer sequences have longer graphs. One that is carried on leaves storages of steps that are over.
    longer = holding.tensors <= run[0][1].tensors and not survived and not any(held.carried for _, held in run)
    return longer and (rank.index.is_renewed(*holding.where) or _leaves_nothing(rank, run))


def _leaves_nothing(rank: RankRecording, run: Points) -> bool:
    """Whether all storages of steps that were sampled meanwhile are gone, although a graph saves more and more: it is
    carried for a while, as over an episode, and begins anew."""
    latest = {s.window: s for s in rank.since_restart(Survivors) if s.tick > run[0][0]}
    saves = size_of(run[-1][1]) > size_of(run[0][1])
    return saves and len(latest) >= 2 and not any(s.bytes for s in latest.values())


def _passes_through(rank: RankRecording, holding: Holding) -> bool:
    """Whether a name is a local of a library's function: a thread that waits in `Queue.put` has its item there."""
    sources = {s.path for s in rank.all(Source)}
    path = holding.place.path if holding.place is not None else ""
    plain = holding.kind == "local" and len(holding.path) == 1
    # `sources` has the program's own files; without any nothing can be told.
    return plain and bool(sources) and path.endswith(".py") and path not in sources


def growth_by_pass(rank: RankRecording, kind: StepKind = "evaluation") -> list[Growth]:
    """What grew from pass to pass in the middle of evaluations, or of training steps, with graphs; the largest first.

    Names that live on from evaluation to evaluation grow from step to step as well and are not among them.
    """
    # Told from step to step already.
    lasting = {key_of(g.holding) for g in growth_of(rank).growths}
    found: dict[Key, Growth] = {}
    for first, last in _pairs_amid(rank, kind):
        series = series_of([first, last], by_pass=True)
        growing = {k: p for k, p in series.items() if len(p) == 2 and rise(*p) > 0 and p[1][1].nodes > p[0][1].nodes}
        for key in localise(growing):
            run = growing[key]
            per = run[-1][0] - run[0][0]
            found[key] = _rates(
                rank, run, kind, per, now=last.passes, left=memory_left(rank, last), ops=_carrier_ops(key, last)
            )
    return sorted((g for k, g in found.items() if k not in lasting), key=lambda g: -g.bytes_per_step)


def gathered(rank: RankRecording) -> list[Growth]:
    """What an evaluation gathered from batch to batch, where much memory rose in it; the largest first. Names that live
    on from evaluation to evaluation grow from step to step as well and are not among them."""
    lasting = {key_of(g.holding) for g in growth_of(rank).growths}
    found: dict[Key, Growth] = {}
    for first, last in _pairs_amid(rank, "evaluation", gathers=True):
        series = series_of([first, last], by_pass=True)
        growing = {k: p for k, p in series.items() if len(p) == 2 and size_of(p[1][1]) > size_of(p[0][1])}
        for key in localise(growing):
            run, per = growing[key], last.passes - first.passes
            found[key] = _rates(rank, run, "evaluation", per, now=last.passes, left=memory_left(rank, last), ops=())
    return sorted((g for k, g in found.items() if k not in lasting), key=lambda g: -g.bytes_per_step)


def _pairs_amid(rank: RankRecording, kind: StepKind, gathers: bool = False) -> list[tuple[Census, Census]]:
    """Two censuses in a row that were taken in the middle of one evaluation, or of one step: for its graphs, or since
    it `gathers`."""
    # Complete ones alone: the difference of two cut searches is chance.
    amid = [c for c in rank.all(Census) if c.amid and c.kind == kind and c.complete and (c.amid < 0) == gathers]
    # `amid` is the number of the evaluation: two of different ones do not compare.
    return [(a, b) for a, b in itertools.pairwise(amid) if a.amid == b.amid and a.passes < b.passes]


def outlives_evaluation(rank: RankRecording, growth: Growth) -> bool:
    """Whether what one evaluation left under a name was still there in the next."""
    key = key_of(growth.holding)
    evaluations = [c for c in rank.all(Census) if c.amid > 0 and c.kind == "evaluation"]
    amid = [(c.amid, size_of(h)) for c in evaluations for h in c.holdings if key_of(h) == key]
    return any(a[0] != b[0] and 0 < a[1] <= b[1] for a, b in itertools.pairwise(amid))


def searched(rank: RankRecording) -> Census | None:
    """The last census, taken while the program's names were there, if it found storages without a name; one that was
    cut short says nothing of them."""
    last = next((c for c in reversed(usable_censuses(rank)) if c.complete or c.unreached), None)
    return last if last is not None and last.unreached else None


def unreached_rate(rank: RankRecording) -> float:
    """Bytes per step that live on although no name leads to them, from the last census that searched for them."""
    census = searched(rank)
    if census is None:
        return 0.0
    # By window: its survivors are checked again and again, and its steps count once.
    steps = {s.window: s.steps for s in rank.since_restart(Survivors) if s.tick <= census.tick}
    return census.unreached / max(1, sum(steps.values()))


def known_rate(rank: RankRecording) -> float | None:
    """By how many bytes per step parameters, buffers, gradients and optimizer state have grown from the first search to
    the last; None where they were not counted twice."""
    looks = usable_censuses(rank)
    if len(looks) < 2:
        return None
    first, last = looks[0], looks[-1]
    _, steps = steps_between(rank, first.tick, last.tick)
    return (sum(last.categories.values()) - sum(first.categories.values())) / max(1, steps)


def usable_censuses(rank: RankRecording) -> list[Census]:
    """The censuses that compare: all but a last look at a program whose `main()` had already let go."""
    censuses = [c for c in rank.since_restart(Census) if not c.amid]
    complete = [c for c in censuses if c.complete]
    # A search that was cut short says less, but more than one single other.
    # Two besides the last look, which alone may be without `main()`'s names.
    found = complete if sum(not c.final for c in complete) > 1 else censuses
    if len(found) > 1 and found[-1].final and ended_by_itself(rank) and _let_go(found[:-1], found[-1]):
        found = found[:-1]
    if _ends_amid_step(found):
        found = found[:-1]
    # Of two looks in one step the earlier one counts: the last look finds names of functions gone.
    unique: dict[int, Census] = {c.tick: c for c in reversed(found)}
    ordered = [unique[t] for t in sorted(unique)]
    # Which names last and which carry a graph is known from the second census on: the first may credit others.
    return ordered[1:] if len(ordered) > 2 else ordered


def _ends_amid_step(censuses: list[Census]) -> bool:
    """Whether the last look came after the last boundary: what the rest of that step stored would count for no step."""
    # Over a long stretch that makes no difference.
    return len(censuses) > 3 and censuses[-1].final and censuses[-1].tick - censuses[-2].tick < _LONG


def _let_go(before: list[Census], final: Census) -> bool:
    """Whether names that were there before the program's end are gone after it, and with them what they held, or they
    were growing: what has taken that over since is a result, and more than there was at the look before it."""
    after = {key_of(h) for h in final.holdings}
    gone = {key_of(h) for h in before[-1].holdings} - after
    # Less in all: the end has freed something, so the last look is of another state.
    if not gone or final.total < before[-1].total:
        return bool(gone)
    series = series_of(before)
    return any(grows(series[key], before[-1].tick) for key in gone)


def ended_by_itself(rank: RankRecording) -> bool:
    """Whether the program's last line had been run before the last look."""
    outcome = rank.last(Outcome)
    # After an exception the frames are still there, and with them the names.
    return outcome is None or outcome.how in ("finished", "exit", "os-exit")


def survival_rate(rank: RankRecording, final: bool = True) -> float:
    """Bytes per step that outlive their step for good: the median over windows of what is alive at their last check,
    that after the program's end among them only where `final`: it finds the variables of functions gone.

    Zero unless storages of the last windows live on too: what filled once and stopped is not growth.
    """
    latest: dict[int, Survivors] = {}
    for record in rank.since_restart(Survivors):
        if final or not record.final:
            # A window is checked several times: what is alive at the last check counts.
            latest[record.window] = record
    rates = [s.bytes / s.steps for _, s in sorted(latest.items()) if s.steps]
    # One window without survivors says that what survives does so by chance, as a cache entry.
    if len(rates) < 2 or rates[-1] == 0 or min(rates) == 0:
        return 0.0
    return statistics.median(rates)


def _sizes_at_the_end(rank: RankRecording, last: Census) -> dict[Key, int]:
    """What names that are still there after the program's end hold then, in bytes."""
    final = next((c for c in reversed(rank.all(Census)) if c.final), None)
    return {key_of(h): size_of(h) for h in final.holdings} if final is not None and final.tick > last.tick else {}


def _taken_over(points: Points, looks: Mapping[int, Census]) -> bool:
    """Whether a rise from one look to the next is not one of all names together: of two that lead to the same graph now
    the one has it and now the other."""
    run = rising_tail(points)
    # Over three points the graph would have had to change sides just before each look.
    if len(run) != 2:
        return False
    (first, a), (then, b) = run
    rise_of_all = _of_all_names(looks[then]) - _of_all_names(looks[first])
    return rise_of_all < (size_of(b) - size_of(a) + NODE_BYTES * (b.nodes - a.nodes)) / 2


def _of_all_names(census: Census) -> int:
    """Bytes of tensors, and of the nodes of their graphs."""
    keys = {key_of(h) for h in census.holdings}
    return census.total + NODE_BYTES * sum(h.nodes for h in census.holdings if key_of(h)[:-1] not in keys)


def _certain(run: Points) -> bool:
    """Whether a rise is one although the searches were cut short: how far those came depends on the machine's mood."""
    first, last = run[0][1], run[-1][1]
    # The length of a list and a carried graph are seen without a walk.
    return last.carried or (first.length or 0) < (last.length or 0)


def _carrier_ops(key: Key, census: Census) -> tuple[str, ...]:
    # What is carried may be an item: of a tuple of states, for example.
    below = (h for h in census.holdings if h.carried and key_of(h)[: len(key)] == key)
    return next((tuple(h.carrier_ops) for h in below), ())


def _dropped(rank: RankRecording, tooth: Tooth) -> Growth:
    """A rise that ended, as growth while it lasted."""
    run = tooth.run
    kind, steps = steps_between(rank, run[0][0], run[-1][0])
    # Nothing left to say of a limit: it has been freed.
    growth = _rates(rank, run, kind, max(1, steps), steps_until(rank, run[-1][0], kind), None, tooth.ops)
    return replace(growth, dropped_at=tooth.ended)


def _growth(
    rank: RankRecording, points: Points, left: int | None, carrier_ops: tuple[str, ...], looks: list[Census]
) -> Growth:
    run = rising_tail(points)
    # The first look at which a name is seen may show a part: of an iterator's items only the blocks that it has passed.
    if len(run) > 2 and run[0] is points[0] and looks and looks[0].tick < run[0][0] and not is_of_models(run):
        run = run[1:]
    kind, steps = steps_between(rank, run[0][0], run[-1][0])
    if is_of_models(run):
        steps += later_by(run, looks)
    per = steps_of_bursts(rank, run, kind) or max(1, steps)
    growth = _rates(rank, run, kind, per, steps_until(rank, run[-1][0], kind), left, carrier_ops)
    return replace(growth, steps=steps, slows=slowing([(steps_until(rank, t, kind), size_of(h)) for t, h in run]))


def _rates(
    rank: RankRecording, run: Points, kind: StepKind, per: float, now: int, left: int | None, ops: tuple[str, ...]
) -> Growth:
    """The rise over a run of points as rates: `per` is the steps that it stands for, `now` those up to its end."""
    (first, a), (last, b) = run[0], run[-1]
    rate = (size_of(b) - size_of(a)) / per
    exhausted = int(now + left / rate) if left is not None and rate > 0 else None
    # What is made anew at each step has its line known only where a census fell into sampled steps.
    sites = next((held.sites for _, held in reversed(run) if held.sites), [])
    return Growth(
        holding=b if b.sites else msgspec.structs.replace(b, sites=sites),
        bytes_per_step=rate,
        direct_per_step=(b.direct - a.direct) / per,
        graph_per_step=(b.graph - a.graph) / per,
        ctx_per_step=(b.ctx - a.ctx) / per,
        idle_per_step=(b.idle - a.idle) / per,
        visible_per_step=(b.visible - a.visible) / per,
        tensors_per_step=(b.tensors - a.tensors) / per,
        nodes_per_step=(b.nodes - a.nodes) / per,
        first_tick=first,
        last_tick=last,
        steps=round(per),
        kind=kind,
        rank=rank.program.rank if rank.program else None,
        exhausted_at=exhausted,
        last_step=now,
        memory_left=left,
        carrier_ops=ops,
        length_before=a.length,
    )
