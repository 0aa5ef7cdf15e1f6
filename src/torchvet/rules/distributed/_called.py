"""The step in which ranks have not called as many collectives as each other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchvet.recording.records.ranks import Called

if TYPE_CHECKING:
    from torchvet.rules.kit import RankRecording


class Parted(NamedTuple):
    """The first step of this kind, and how many collectives each rank has called in it."""

    step: int
    calls: dict[int, int]
    """By rank."""


def parted(ranks: Sequence[RankRecording]) -> Parted | None:
    """By what all of these ranks have counted. None where they called as many, where they came together again (as
    stages of a pipeline do), and where they had never been together."""
    known = {one.rank: calls for one in ranks if (calls := one.last(Called)) is not None}
    if len(known) < max(2, len(ranks)):
        return None
    start = max(calls.step for calls in known.values())
    end = min(calls.stretches[-1].last for calls in known.values())
    # Nothing was counted of the same steps, they were never together, or they came together again.
    if end <= start or _differ(known, start) or not _differ(known, end):
        return None
    return _first(known, start, _ends(known, start, end))


def _ends(known: dict[int, Called], start: int, end: int) -> list[int]:
    """The steps at which some rank's number of collectives may change."""
    lasts = {stretch.last for calls in known.values() for stretch in calls.stretches}
    return sorted({last for last in lasts if start < last < end} | {end})


def _first(known: dict[int, Called], start: int, ends: list[int]) -> Parted | None:
    alike = False
    for last in ends:
        here = {rank: _calls(calls, last) for rank, calls in known.items()}
        if len(set(here.values())) > 1:
            # Ranks that part in the first step that is known may always have called unlike numbers.
            return Parted(start + 1, here) if alike else None
        start, alike = last, True
    return None


def _calls(called: Called, step: int) -> int:
    """Collectives in this step."""
    return called.stretches[bisect_left([s.last for s in called.stretches], step)].calls


def _differ(known: dict[int, Called], step: int) -> bool:
    return len({_total(called, step) for called in known.values()}) > 1


def _total(called: Called, step: int) -> int:
    """Collectives by the end of a step."""
    total, before = called.total, called.step
    for stretch in called.stretches:
        last = min(stretch.last, step)
        total, before = total + max(0, last - before) * stretch.calls, max(before, last)
    return total
