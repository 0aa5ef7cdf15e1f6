"""DST109: ranks wait for each other and none goes on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torchvet.analysis.ranks import is_lost
from torchvet.rules.distributed._called import Parted, parted
from torchvet.rules.kit import Finding, Findings, Place, RankRecording, Recording, Related, Rule, count, ms, records

_ABORTED, _TERMINATED = 6, 15
"""Signals: a failed assertion of a library's, and what a launcher ends ranks by."""
_PASSES = ("forward", "backward")
_BRANCH = (
    "a collective returns once every rank has called it, in the same order; here a branch or a different number of "
    "turns of a loop leads ranks to different calls"
)
_CALL_ALIKE = (
    "call the same collectives in the same order on every rank: move this call out of the branch that only some ranks "
    "take"
)


class _Waits(NamedTuple):
    """A rank that waits for others, or whose wait has failed, with the line and the call in which it does."""

    rank: RankRecording
    place: Place
    call: str
    seconds: float | None

    @property
    def where(self) -> str:
        call = f"in `{self.call}` " if self.call else ""
        return f"{call}at line {self.place.line}"


class CollectivesOutOfOrder(Rule):
    """Ranks wait in different collectives, or for a rank that does not come."""

    severity = "error"
    found_with = ("run", "--nproc", "2")
    bad_raises = "gloo/transport"
    silence_clears = False

    def in_recording(self, recording: Recording) -> Findings:
        """By where each rank stood when the program ended."""
        ranks = recording.members
        if any(_broke(one) for one in ranks):
            return  # the others wait for that one, and its own error says why
        waiting = [found for one in ranks if (found := _waiting(one)) is not None]
        if waiting:
            yield from self._of(ranks, waiting)

    def _of(self, ranks: list[RankRecording], waiting: list[_Waits]) -> Findings:
        gone = [one for one in ranks if _has_finished(one)]
        held_up = [found for one in ranks if (found := _held_up(one)) is not None]
        apart = parted(ranks)
        several = len({(w.place.path, w.place.line) for w in waiting}) > 1
        if gone:
            yield self._left_alone(waiting, gone, apart)
        elif held_up:
            yield self._held_up(waiting, held_up[0])
        elif several or (apart is not None and len(waiting) == len(ranks)):
            yield self._in_different_ones(waiting, apart)

    def _left_alone(self, waiting: list[_Waits], gone: list[RankRecording], apart: Parted | None) -> Finding:
        one, other = waiting[0], gone[0]
        cause = "a collective returns once every rank has called it; a rank that has fewer batches, or leaves its "
        cause += "loop earlier, calls fewer of them"
        advice = "give every rank as many batches (DistributedSampler with drop_last=True, or stop all at the "
        advice += "shortest), or wrap the loop in `with model.join():`"
        if apart is not None:
            cause, advice = _skipped(apart), _CALL_ALIKE
        return self.observed(
            one.rank,
            one.place,
            f"{_names(w.rank for w in waiting)} {_verb(waiting, 'waits', 'wait')} {one.where} in step "
            f"{one.rank.ticks + 1}, while {_names(gone)} ended after {count(other.ticks, 'step')}",
            cause=cause,
            advice=advice,
        )

    def _held_up(self, waiting: list[_Waits], late: _Waits) -> Finding:
        one = waiting[0]
        doing = f" in `{late.call}`" if late.call else ""
        doing += f" for {ms(late.seconds)}" if late.seconds else ""
        return self.observed(
            late.rank,
            late.place,
            f"rank {late.rank.rank} stands still{doing}, and "
            f"{_names(w.rank for w in waiting)} {_verb(waiting, 'waits', 'wait')} for it {one.where}",
            cause="the other ranks have called their next collective, and it returns once this rank has called it too",
            advice="find what this line waits for; do work of one rank only where the others do not wait for it, or "
            "give the process group a longer timeout",
            related=[_beside(w) for w in waiting],
        )

    def _in_different_ones(self, waiting: list[_Waits], apart: Parted | None) -> Finding:
        groups: dict[tuple[str, int], list[_Waits]] = {}
        for one in waiting:
            groups.setdefault((one.place.path, one.place.line), []).append(one)
        # The fewest first: a call that one rank alone makes is the one to look at. The model's passes belong to all.
        ordered = sorted(groups.values(), key=lambda g: (len(g), g[0].call.endswith(_PASSES), g[0].rank.rank))
        parts = [f"{_names(w.rank for w in group)} {group[0].where}" for group in ordered]
        message = f"ranks wait in different collectives: {', '.join(parts)}"
        if len(groups) == 1:
            message = f"all ranks wait {ordered[0][0].where}, and not for the same collective"
        return self.observed(
            ordered[0][0].rank,
            ordered[0][0].place,
            message,
            cause=_BRANCH if apart is None else _skipped(apart),
            advice=_CALL_ALIKE,
            related=[_beside(w) for group in ordered[1:] for w in group],
        )


def _skipped(apart: Parted) -> str:
    """What ranks called in the step in which they parted."""
    by_calls: dict[int, list[int]] = {}
    for rank, calls in apart.calls.items():
        by_calls.setdefault(calls, []).append(rank)
    parts = [f"{_numbered(ranks)} called {count(calls, 'collective')}" for calls, ranks in sorted(by_calls.items())]
    return (
        f"the ranks parted in step {apart.step}, where {' and '.join(parts)}: from there on a call of one is "
        "answered by another call of the others, with other values"
    )


def _waiting(one: RankRecording) -> _Waits | None:
    """By what was seen of it last, else by the error in which its wait has ended."""
    last, outcome = _last(one), one.last(records.training.Outcome)
    if last is not None and last.waits and last.place is not None:
        return _Waits(one, last.place, last.call, last.seconds)
    if outcome is not None and outcome.place is not None and is_lost(outcome):
        return _Waits(one, outcome.place, "", None)
    return None


def _held_up(one: RankRecording) -> _Waits | None:
    """Whether it stands still, and not for other ranks."""
    last = _last(one)
    if last is None or last.waits or last.place is None:
        return None
    return _Waits(one, last.place, last.call, last.seconds)


def _last(one: RankRecording) -> records.ranks.Standstill | None:
    """Where it stood still at the end: not where it went on from."""
    last, outcome = one.last(records.ranks.Standstill), one.last(records.training.Outcome)
    if last is None or last.tick != one.ticks or _has_finished(one):
        return None
    moved = outcome is not None and outcome.place is not None and outcome.place != last.place
    return None if moved else last


def _has_finished(one: RankRecording) -> bool:
    outcome = one.last(records.training.Outcome)
    return outcome is not None and outcome.how in ("finished", "exit", "os-exit") and outcome.status == 0


def _broke(one: RankRecording) -> bool:
    """Whether it ended by an error of its own, or was killed by none of a launcher's signals."""
    outcome = one.last(records.training.Outcome)
    if outcome is None:
        return False
    if outcome.how == "killed":
        last = _last(one)
        # A backend that gets what it did not expect aborts, within the collective.
        aborted = outcome.status == -_ABORTED and last is not None and last.waits
        return outcome.status not in (0, -_TERMINATED) and not aborted
    return outcome.how in ("exception", "out-of-memory") and not is_lost(outcome)


def _names(ranks: Iterable[RankRecording]) -> str:
    return _numbered([one.rank for one in ranks])


def _numbered(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    return f"rank{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _verb(waiting: list[_Waits], one: str, several: str) -> str:
    return one if len(waiting) == 1 else several


def _beside(one: _Waits) -> Related:
    message = f"rank {one.rank.rank} waits {one.where}"
    return Related(role="waits", message=message, path=one.place.path, line=one.place.line)
