"""What each witness of growth says of a run: memory is flat, it grows, or it was not seen well enough to tell.

A clean verdict, a finding of growth without a name, and "measured harmless" all go by these.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from torchvet.analysis import growth_of
from torchvet.analysis.growth import usable_censuses
from torchvet.analysis.growth_series import key_of
from torchvet.analysis.memory_limit import room_of
from torchvet.analysis.memory_series import collectives, device_sizes, heap_sizes, per_step, resident_sizes
from torchvet.analysis.steps import steps_between
from torchvet.rules.kit import Growth, RankRecording, Recording, count, records, size
from torchvet.rules.shared.bounds import bound_of

if TYPE_CHECKING:
    from torchvet.analysis.trend import Sizes

State = Literal["flat", "grows", "not seen"]
WitnessName = Literal["live storages", "device memory", "heap", "resident set", "graph nodes"]

_UNKNOWN_ROOM = 16 << 30
"""Bytes of memory that a machine has whose limit is not known."""
_SMALL = (1 << 10, 4 << 10)
_LARGE = (8 << 10, 32 << 10)
"""Limits, in bytes per step, of the two thresholds of what is sampled. Of 87 healthy programs 83 stayed below 2.5 kB,
most of them below 0.4 kB, and the upper ends of their intervals below 18 kB (heap, torch 2.13.0)."""
_NODE_MOST, _TENSOR_MOST = 1000, 1200
"""Host bytes of a node and of a tensor at the most, besides what it saves or shows (torch 2.13.0)."""
_ENTRY_MOST = 2000
"""Host bytes of a collective in the ring of torch's flight recorder, at the most: 0.9 to 1.7 kB (torch 2.13.0, gloo;
none with `TORCH_FR_BUFFER_SIZE=0`, and none once the ring is full)."""
_FOLLOWED = 2
"""Windows whose storages must have been followed."""
_AGE = 2
"""Steps after which a window's storages have been checked for the first time."""
_ENOUGH_STEPS = 60
_LONGER = "run longer"
_ENOUGH_SAMPLES = 16
"""Samples that say whether something grows, where they lie evenly."""
_SHAPES = 2
"""Different shapes that batches of one size and the last batch of an epoch have."""
_REMAINDER = 0.05
"""Share of all growth below which what no name holds is what searches leave."""
_SPAN = 24
"""Steps of the later half below which a rise may be warming up: no healthy program of 60 steps rises for so long, some
of 10 to 40 do, and one of 56 did once (by 3.9 kB per step, on a busy machine)."""
_TOLERANCE = 0.15
"""Share of named growth by which what is sampled may lie above it: blocks are larger than what is asked for."""


@dataclass(frozen=True)
class Witness:
    """One measure of growth. `measured` is per step, without what findings explain; `low` and `high` are the interval
    that it lies in; up to `threshold` it counts as flat. `reason` says why where it is not flat, and `fix` what to
    do."""

    name: WitnessName
    state: State
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    threshold: float | None = None
    unit: Literal["bytes", "nodes"] = "bytes"
    reason: str = ""
    fix: str = ""
    explained: float = 0.0
    """What growing names explain of what was counted, per step, at the most."""
    ceiling: float | None = None
    """By how much the largest sizes rise per step, where it is flat because it falls again by what it rises."""


def witnesses(rank: RankRecording, recording: Recording) -> list[Witness]:
    """All witnesses of growth in one rank."""
    host = heap(rank)
    found = [storages(rank, recording), host, nodes(rank, host)]
    if _on_device(rank):
        # In the order in which a report lists them; the heap comes after the device.
        found.insert(1, device_memory(rank))
    return found


def nothing_rises(recording: Recording) -> bool:
    """Whether no witness has seen growth, in any rank, and each has seen enough. What rises for a while and falls again
    (a state that is carried through an epoch) is flat in the long run, and no evidence that a line keeps nothing."""
    return all(
        # A sawtooth is flat for the verdict, and yet its teeth are what some line keeps.
        w.state == "flat" and (w.ceiling is None or (w.high or 0.0) <= sampled_thresholds(rank)[1])
        for rank in recording.ranks
        for w in witnesses(rank, recording)
    )


def allocator(rank: RankRecording) -> Witness:
    """The witness that counts the bytes of tensors whoever holds them: of the device where there is one, else of the
    host."""
    return device_memory(rank) if _on_device(rank) else heap(rank)


def exact_threshold(rank: RankRecording) -> float:
    """Bytes per step, exactly counted, that memory bears for a hundred million steps."""
    return _room(rank) / 100_000_000


def sampled_thresholds(rank: RankRecording) -> tuple[float, float]:
    """Bytes per step of what is sampled: more than the first is growth where it is sure, up to the second is flat where
    it is not. Memory bears them for ten million steps and for one million."""
    room = _room(rank)
    return _within(room / 10_000_000, *_SMALL), _within(room / 1_000_000, *_LARGE)


def storages(rank: RankRecording, recording: Recording) -> Witness:
    """Storages of sampled steps that live on: counted exactly, but in sampled steps only."""
    unnamed, threshold = without_a_name(rank), exact_threshold(rank)
    small, _ = sampled_thresholds(rank)
    # What is bounded for sure has an end; what nothing bounds has a finding, which is enough.
    loose = [g for g in growth_of(rank).growths if g.bytes_per_step > small and _may_go_on(g, recording)]
    rate = unnamed + sum(g.bytes_per_step for g in loose)
    base = Witness("live storages", "flat", measured=rate, low=rate, high=rate, threshold=threshold)
    # Before the count of windows: what was seen to grow needs no more evidence.
    if unnamed:
        return replace(base, state="grows", reason=f"storages of {size(unnamed)} per step live on without a name")
    if loose:
        reason = f"`{loose[0].holding.name}` grows by {size(loose[0].bytes_per_step)} per step to the run's end"
        return replace(base, state="grows", reason=reason, fix="run until it is seen to stop")
    followed = windows_followed(rank)
    if followed < _FOLLOWED:
        reason = f"the storages of {count(followed)} sampled stretches were followed, which is too few"
        return replace(base, state="not seen", reason=reason, fix=_more(rank))
    return base


def without_a_name(rank: RankRecording) -> float:
    """Bytes per step of storages that live on and that no name holds; 0 where that is a remainder of the search."""
    growth = growth_of(rank)
    least = max(exact_threshold(rank), _REMAINDER * growth.measured)
    return growth.unexplained if growth.unexplained > least else 0.0


def _may_go_on(growth: Growth, recording: Recording) -> bool:
    """Whether a growing name has a limit only by its source's text: nothing was seen or computed to hold it."""
    bound = bound_of(growth, recording)
    return bound is not None and bound.bytes is None


def windows_followed(rank: RankRecording) -> int:
    """Windows of which it is known how many of their storages lived on."""
    checked: dict[int, bool] = {}
    for record in rank.since_restart(records.base.Survivors):
        # A window that only the last look has checked was not followed while the program ran.
        checked[record.window] = checked.get(record.window, False) or not record.final
    ended = [w for w in rank.since_restart(records.base.Window) if w.last + _AGE <= rank.ticks]
    # No record: none of the window's storages was alive at its end.
    return sum(checked.get(w.id, True) for w in ended)


def device_memory(rank: RankRecording) -> Witness:
    """What the device's caching allocator has given out."""
    named, again = _named_bytes(rank), sum(g.bytes_per_step for g in growth_of(rank).refilled)
    return _sampled(rank, "device memory", device_sizes(rank), (named, named + again))


def heap(rank: RankRecording) -> Witness:
    """What the process has from malloc: tensors of the host, nodes of graphs, everything native."""
    growth = growth_of(rank)
    # On a device the tensors are not in the heap; a simulated one keeps them there.
    there = not _on_device(rank) or (rank.program is not None and rank.program.simulated is not None)
    least = _named_bytes(rank) if there else 0.0
    # A kept tensor costs the heap more than its bytes: its objects and its nodes are explained growth as well.
    objects = sum(_TENSOR_MOST * max(0.0, g.tensors_per_step) for g in (*growth.growths, *growth.refilled))
    objects += _ENTRY_MOST * _recorded(rank)
    # An interval: how large objects are differs with what they have cached.
    again = sum(g.bytes_per_step + _NODE_MOST * g.nodes_per_step for g in growth.refilled) if there else 0.0
    explained = (least, least + again + objects + _NODE_MOST * max(0.0, _named_nodes(rank)))
    # The resident set where there is no count of the heap: it moves in pages and by what others do.
    sizes = heap_sizes(rank)
    if sizes:
        return _sampled(rank, "heap", sizes, explained)
    return _sampled(rank, "resident set", resident_sizes(rank), explained)


def _recorded(rank: RankRecording) -> float:
    """Collectives per step that torch's flight recorder has added to its ring, in the later half of the run."""
    counted = collectives(rank)
    # The same half that the trend is of.
    later = counted[len(counted) // 2 :]
    if len(later) < 2:
        return 0.0
    _, steps = steps_between(rank, later[0][0], later[-1][0])
    return (later[-1][1] - later[0][1]) / max(1, steps)


def nodes(rank: RankRecording, host: Witness) -> Witness:
    """Nodes of the graphs that names lead to; where names were not searched often enough, the heap bounds them."""
    small, _ = sampled_thresholds(rank)
    threshold = small / records.base.NODE_BYTES
    rate = _nodes_rate(rank)
    # Nodes live on the host: where its memory is flat, a rise between two counts is no growth.
    if rate is not None and (rate <= threshold or host.state != "flat"):
        grows = rate > threshold
        reason = f"autograd graphs grow by {count(rate)} nodes per step" if grows else ""
        state: State = "grows" if grows else "flat"
        return Witness("graph nodes", state, rate, rate, rate, threshold, "nodes", reason)
    if host.state == "flat" and host.high is not None:
        most = max(0.0, host.high) / records.base.NODE_BYTES
        return Witness("graph nodes", "flat", 0.0, 0.0, most, threshold, "nodes")
    reason = "autograd graphs were not counted often enough"
    return Witness("graph nodes", "not seen", threshold=threshold, unit="nodes", reason=reason, fix=_more(rank))


def _sampled(rank: RankRecording, name: WitnessName, sizes: Sizes, explained: tuple[float, float]) -> Witness:
    """A witness by samples; `explained` is the least and the most that findings explain per step."""
    small, large = sampled_thresholds(rank)
    trend, ticks = per_step(rank, sizes)
    base = Witness(name, "not seen", threshold=small)
    if trend is None:
        return replace(
            base, reason=_too_few(name, len(sizes)), fix=_more(rank) if len(sizes) < _ENOUGH_SAMPLES else _LONGER
        )
    # malloc rounds sizes up.
    least, most = explained[0], explained[1] * (1 + _TOLERANCE)
    rate = _beyond(trend.rate * ticks, least, most)
    low, high = trend.low * ticks - most, trend.high * ticks - least
    base = replace(base, measured=rate, low=low, high=high, explained=most)
    ceiling = trend.ceiling * ticks - most
    # What findings explain is itself only known between two limits, so the interval may be wider by that much.
    # Both: the likely rate is small, and even the upper end is bearable.
    if rate <= small and high <= large + most - least:
        return replace(base, state="flat")
    # A state that is carried through an epoch and dropped rises and falls: its peaks do not rise.
    if trend.falls and ceiling <= small:
        return replace(base, state="flat", ceiling=ceiling)
    between = f"between {size(low)} and {size(high)} per step"
    # Floors and peaks must rise, over a stretch that no warming up takes.
    if low > small and ceiling > low / 2 and trend.half >= _SPAN:
        return replace(base, state="grows", reason=f"the {name} grows by {size(rate)} per step ({between})")
    return replace(base, reason=_open(name, between, low > small, ceiling > low / 2), fix=_more(rank))


def _open(name: WitnessName, between: str, rises: bool, higher: bool) -> str:
    """Why it is not known whether something grows: it `rises`, and `higher` than before, or it goes up and down."""
    if not rises:
        return f"the {name} varies too much to rule out growth: {between}"
    if higher:
        return f"the {name} rises ({between}), for too few steps to tell growth from warming up"
    return f"the {name} rises ({between}), but hardly above where it was before: it may fall again"


def _more(rank: RankRecording) -> str:
    """What to do where a run has shown too little: no run of enough steps is told to make that many."""
    return f"run more steps ({_ENOUGH_STEPS} or more)" if rank.ticks < _ENOUGH_STEPS else _LONGER


def _too_few(name: WitnessName, samples: int) -> str:
    if not samples:
        return f"this system does not say how large the {name} is"
    seldom = ", of which too few are late: each takes long here" if samples >= _ENOUGH_SAMPLES else ", which is too few"
    return f"the {name} was sampled at {count(samples)} step boundaries{seldom}"


def _beyond(rate: float, least: float, most: float) -> float:
    """What of a rate is not explained by an amount between two limits; negative where it falls short of it."""
    # Within the interval nothing is left to explain: 0.
    return rate - most if rate > most else min(0.0, rate - least)


def _nodes_rate(rank: RankRecording) -> float | None:
    """Nodes per step without those of growing names; None where fewer than two searches came to their end."""
    # At the end graphs of the last step are gone, or not yet.
    looks = [c for c in usable_censuses(rank) if c.complete and not c.final]
    if len(looks) < 2:
        return None
    counts = [_nodes_of(c) for c in looks]
    if any(a > b for a, b in itertools.pairwise(counts)):
        return 0.0  # graphs are freed
    _, steps = steps_between(rank, looks[0].tick, looks[-1].tick)
    return max(0.0, (counts[-1] - counts[0]) / max(1, steps) - _named_nodes(rank))


def _nodes_of(census: records.base.Census) -> int:
    keys = {key_of(h) for h in census.holdings}
    # Roots alone: an inner name's nodes are in its holder's number.
    return sum(h.nodes for h in census.holdings if key_of(h)[:-1] not in keys)


def _named_bytes(rank: RankRecording) -> float:
    return growth_of(rank).explained + growth_of(rank).unreached


def _named_nodes(rank: RankRecording) -> float:
    return sum(g.nodes_per_step for g in growth_of(rank).growths)


def _on_device(rank: RankRecording) -> bool:
    return rank.program is not None and rank.program.device != "cpu"


def _room(rank: RankRecording) -> float:
    return float(room_of(rank) or _UNKNOWN_ROOM)


def room_in(rank: RankRecording) -> int | None:
    """Bytes that tensors may take; None where no limit is known."""
    return room_of(rank)


def shapes_change(rank: RankRecording) -> bool:
    """Whether one operator on one line gave results of ever other shapes in sampled stretches of one kind: not only in
    the last, smaller batch of an epoch, which differs in its first dimension alone."""
    seen: dict[Any, dict[int, set[tuple[int, ...]]]] = {}
    for one in rank.since_restart(records.base.Window):
        for row in one.sites:
            # One line may call an operator for training and for evaluation.
            key = (one.kind, row.site.op, row.site.place or row.site.inner, row.site.module, row.site.phase)
            seen.setdefault(key, {}).setdefault(one.id, set()).add(row.site.shape)
    return any(_change(list(by_window.values())) for by_window in seen.values())


def _change(shapes: list[set[tuple[int, ...]]]) -> bool:
    """Of one operator's shapes in each window."""
    # Without the batch dimension.
    inner = [{shape[1:] for shape in found} for found in shapes]
    return len(set(map(frozenset, shapes))) > _SHAPES or any(
        a.isdisjoint(b) for a, b in itertools.combinations(inner, 2)
    )


def _within(value: float, least: float, most: float) -> float:
    return min(max(value, least), most)
