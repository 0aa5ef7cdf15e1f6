"""Which rank arrives last at the collectives, found without comparing clocks.

A collective that all ranks need ends on all of them together, so the rank with the shortest kernel was the last to
arrive, and how much longer the others' kernels are is how long they waited.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from torchvet.readers.trace_facts import Collective, RankTrace
from torchvet.rules.kit import Sequence

_WAIT = 50e-6
"""Seconds from which on a difference is waiting and not the collective's own unevenness."""
_ONE_SIDED = ("sendrecv", "broadcast", "send", "recv", "scatter_", "gather_", "reduce_kernel")
_AS_A_RULE = 0.6
_EXPLAINS = 0.3


class Late(NamedTuple):
    """The rank that is late, in seconds per step beyond what is usual, with where and why."""

    rank: RankTrace
    seconds: float
    name: str
    phase: str
    reason: str
    last_share: float


def late_rank(ranks: list[RankTrace]) -> Late | None:
    """The rank that is last as a rule, or None: fewer than two ranks, nothing in common, or nobody in particular."""
    table = _matched(ranks)
    if not table:
        return None
    found = _waited_for(table, len(ranks))
    means = [sum(one.steps) / len(table) for one in found]
    worst = means.index(max(means))
    by_step = zip(*(one.steps for one in found), strict=True)
    often = sum(step[worst] == max(step) > 0 for step in by_step)
    if not means[worst] or often < _AS_A_RULE * len(table):
        return None
    (name, phase), _ = max(found[worst].places.items(), key=lambda p: p[1])
    seconds = _beyond_usual(means, worst)
    reason = _reason(ranks, worst, seconds)
    share = found[worst].times / sum(one.times for one in found)
    return Late(ranks[worst], seconds, name, phase, reason, share)


@dataclass
class _Waited:
    """What the other ranks have waited for one: seconds by step and by collective, and how many times."""

    steps: list[float]
    places: dict[tuple[str, str], float] = field(default_factory=dict)
    times: int = 0


def _waited_for(table: list[list[list[Collective]]], ranks: int) -> list[_Waited]:
    found = [_Waited([0.0] * len(table)) for _ in range(ranks)]
    for number, entries in ((number, entries) for number, row in enumerate(table) for entries in row):
        # Who waits least has come last: a collective ends on all ranks together.
        durations = [e.duration for e in entries]
        last = durations.index(min(durations))
        wait = _beyond_usual([-d for d in durations], last)
        if wait >= _WAIT:
            one, place = found[last], (entries[last].name, entries[last].phase)
            one.times += 1
            one.steps[number] += wait
            one.places[place] = one.places.get(place, 0.0) + wait
    return found


def _beyond_usual(values: Sequence[float], rank: int) -> float:
    """By how much one rank's value is larger than the median of the others'."""
    return values[rank] - median(v for r, v in enumerate(values) if r != rank)


def _matched(ranks: list[RankTrace]) -> list[list[list[Collective]]]:
    """By step and by collective: what every rank says of it. Steps in which ranks differ in number are skipped."""
    if len(ranks) < 2 or not all(r.collectives for r in ranks):
        return []
    by_step: list[dict[int, list[Collective]]] = []
    for rank in ranks:
        steps: dict[int, list[Collective]] = {}
        for item in rank.collectives:
            if not any(word in item.name.lower() for word in _ONE_SIDED):
                steps.setdefault(item.step, []).append(item)
        by_step.append(steps)
    table = []
    for step in sorted(set(by_step[0]).intersection(*by_step[1:])):
        lists = [steps[step] for steps in by_step]
        if len({len(items) for items in lists}) == 1:
            table.append([list(entries) for entries in zip(*lists, strict=True)])
    return table


_DIFFERENCES = {
    "compute": "computes {} longer a step than the others",
    "input": "waits {} longer a step for its loader than the others",
    "idle": "leaves its device idle for {} longer a step than the others",
    "host": "spends {} more a step on the host than the others",
}


def _reason(ranks: list[RankTrace], worst: int, seconds: float) -> str:
    """In which kind of time of its own the late rank differs most."""
    best, most = "", 0.0
    for kind in ranks[worst].skewed:
        more = _beyond_usual([r.skewed.get(kind, 0.0) for r in ranks], worst)
        if more > most:
            best, most = kind, more
    if most < _EXPLAINS * seconds or not best:
        return "does something that its trace does not tell apart"
    return _DIFFERENCES[best].format(f"{most * 1e3:.1f} ms")
