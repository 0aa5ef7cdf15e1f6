"""DST110: parameters that should be the same on all ranks are not."""

from __future__ import annotations

import re
from typing import NamedTuple

from torchvet.formatting import count
from torchvet.recording.records.base import Place
from torchvet.recording.records.ranks import Replica, Replicas
from torchvet.rules.kit import Findings, Location, RankRecording, Recording, Rule, Severity

_NAMES = 3
_AGAIN = 2
"""Looks at which parameters are equal again before they count as being averaged from time to time."""


class _Look(NamedTuple):
    """The same parameters after the same step, as each rank has them."""

    step: int
    of_ranks: list[Replicas]
    rows: list[list[Replica]]
    """By parameter: what each rank says of it."""

    def apart(self) -> list[list[Replica]]:
        """The parameters that are not the same everywhere."""
        return [row for row in self.rows if _differ([one.after for one in row])]


class _Cause(NamedTuple):
    why: str
    advice: str
    text: str = ""
    """What the line to look at has, where it is not the optimizer's step."""


class ReplicasDiverge(Rule):
    """Parameters that should be the same on all ranks are not."""

    severity = "error"
    found_with = ("run", "--nproc", "2")
    fix_changes_results = True

    def in_recording(self, recording: Recording) -> Findings:
        """By digests of the parameters' bits after the same steps."""
        ranks = recording.members
        numbers = {r.optimizer for one in ranks for r in one.all(Replicas)}
        for number in sorted(numbers) if len(ranks) > 1 else ():
            looks = list(_looks(ranks, number))
            first = next((look for look in looks if look.apart()), None)
            if first is not None and not _is_averaged(looks) and _alike(looks):
                yield from self._of(recording, ranks[0], looks, first)

    def _of(self, recording: Recording, rank: RankRecording, looks: list[_Look], first: _Look) -> Findings:
        apart = first.apart()
        cause = _cause(looks, first)
        wrapped = any(one.wrapped for row in apart for one in row)
        some = len(apart) < len(first.rows)
        since = "before the first step" if _differ_before(apart) else f"after step {first.step}"
        names = ", ".join(f"`{row[0].name}`" for row in apart[:_NAMES])
        more = f" and {len(apart) - _NAMES} more" if len(apart) > _NAMES else ""
        of = f"{count(len(apart))} of {count(len(first.rows), 'parameter')}" if some else "all parameters"
        severity: Severity = "error" if wrapped or some or _same_gradients(apart) or _sharded(first) else "warning"
        step = first.of_ranks[0].place
        yield self.observed(
            rank,
            _line_with(recording, cause.text, step) or step,
            f"{of} differ between the ranks {since}: {names}{more}",
            cause=cause.why,
            advice=cause.advice,
            severity=severity,
        )


def _looks(ranks: list[RankRecording], number: int) -> list[_Look]:
    """What all ranks looked at, in the order of steps; parameters that are sharded or that one rank lacks left out."""
    by_rank = [{r.step: r for r in one.all(Replicas) if r.optimizer == number} for one in ranks]
    found = []
    for step in sorted(set.intersection(*map(set, by_rank))):
        of_ranks = [known[step] for known in by_rank]
        tables = [{(p.name, p.shape): p for p in one.parameters if not p.sharded} for one in of_ranks]
        shared = [key for key in tables[0] if all(key in table for table in tables)]
        rows = [[table[key] for table in tables] for key in shared]
        if rows:
            found.append(_Look(step, of_ranks, rows))
    return found


def _differ(digests: list[int | None]) -> bool:
    known = {d for d in digests if d is not None}
    return len(known) > 1


def _alike(looks: list[_Look]) -> bool:
    """Whether ranks have the same model: parts of a pipeline have other names or shapes."""
    look = looks[0]
    return all(len(look.rows) >= 0.9 * sum(not p.sharded for p in one.parameters) for one in look.of_ranks)


def _is_averaged(looks: list[_Look]) -> bool:
    """Whether ranks come together again and again: local steps between averages are meant to differ."""
    states = [not look.apart() for look in looks]
    first = states.index(False)
    return sum(states[first:]) >= _AGAIN


def _differ_before(rows: list[list[Replica]]) -> bool:
    return any(_differ([one.before for one in row]) for row in rows)


def _same_gradients(rows: list[list[Replica]]) -> bool:
    """Whether ranks have the same gradients: somebody has made them so."""
    known = [[one.gradient for one in row] for row in rows if all(one.gradient is not None for one in row)]
    return bool(known) and not any(map(_differ, known))


def _sharded(look: _Look) -> bool:
    """Whether other parameters of the model are shards."""
    return any(p.sharded for one in look.of_ranks for p in one.parameters)


def _cause(looks: list[_Look], first: _Look) -> _Cause:
    apart = first.apart()
    some = len(apart) < len(first.rows)
    wrapped = any(one.wrapped for row in apart for one in row)
    rates = {tuple(one.rates) for one in first.of_ranks}
    if len(rates) > 1:
        shown = ", ".join(f"{next(iter(one)):g}" for one in sorted(rates) if one)
        why = f"the learning rates differ: the ranks have {shown} in step {first.step}"
        return _Cause(why, "step the scheduler, and set learning rates, on every rank alike", "scheduler|sched")
    if _differ_before(apart):
        why = "the parameters differ before the first step: each rank has initialized its own"
        advice = "seed all ranks alike before the model is made, or broadcast rank 0's parameters (DDP does so)"
        return _Cause(why, advice, r"manual_seed\(")
    if _same_gradients(apart):
        why = "the ranks have the same gradients in this step, so that the optimizers' state or the update differs"
        return _Cause(why, "load the same optimizer state and use the same update on every rank")
    if wrapped:
        why = (
            "DistributedDataParallel has not reduced their gradients: its own forward was not called, or `no_sync` held"
        )
        return _Cause(why, "call the wrapped model itself (`model(x)`, not `model.module(x)`)", r"\.module\(|no_sync\(")
    if _sharded(first):
        why = "the model is sharded, and these parameters are not part of it: nobody reduces their gradients"
        return _Cause(why, "call `fully_shard` on the whole model as well, after its parts", r"fully_shard\(")
    if some:
        why = "the ranks' gradients of these parameters differ before the step, while those of the others are the same"
        advice = (
            "reduce the gradients of all parameters (`model.parameters()`); wrap the model after the last was added"
        )
        return _Cause(why, advice)
    why = "each rank steps on gradients of its own: none is reduced before the step"
    return _Cause(why, "wrap the model in DistributedDataParallel, or all-reduce every gradient before the step")


def _line_with(recording: Recording, pattern: str, step: Place | None) -> Location | None:
    """The first line of the program that has a text, in the file that takes the step before others."""
    if not pattern:
        return None
    paths = sorted(recording.sources, key=lambda path: step is None or path != step.path)
    for path in paths:
        for number, text in enumerate(recording.sources[path].splitlines(), 1):
            if re.search(pattern, text.partition("#")[0]) and not text.lstrip().startswith(("import", "from", "def")):
                return Location(path=path, line=number)
    return None
