"""DST110: parameters that should be the same on all ranks are not."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from torchvet.recording import records
from torchvet.rules.distributed import _replica_looks as replica_looks
from torchvet.rules.distributed._in_text import first_call
from torchvet.rules.distributed._modules import modules_of
from torchvet.rules.kit import Finding, Findings, Location, Place, RankRecording, Recording, Rule, Severity, count

_NAMES = 3


class _Cause(NamedTuple):
    why: str
    advice: str
    place: Place | Location | None = None
    """The line to look at, where it is not the optimizer's step."""


class ReplicasDiverge(Rule):
    """Parameters that should be the same on all ranks are not."""

    severity = "error"
    found_with = ("run", "--nproc", "2")
    fix_changes_results = True

    def in_recording(self, recording: Recording) -> Findings:
        """By digests of the parameters' bits after the same steps, and of the buffers that an evaluation went by."""
        ranks = recording.members
        yield from self._buffers(ranks)
        numbers = {r.optimizer for one in ranks for r in one.all(records.ranks.Replicas)}
        for number in sorted(numbers) if len(ranks) > 1 else ():
            looks = replica_looks.looks_of(ranks, number)
            first = next((look for look in looks if look.apart()), None)
            if first is not None and not replica_looks.are_averaged(looks) and replica_looks.are_alike(looks):
                yield self._of(recording, ranks[0], first)

    def _buffers(self, ranks: list[RankRecording]) -> Findings:
        tables = [{(r.id, r.number): r for r in one.all(records.ranks.EvaluatedBuffers)} for one in ranks]
        for key in sorted(set.intersection(*map(set, tables))) if len(tables) > 1 else ():
            looked = [table[key] for table in tables]
            if len({one.digest for one in looked}) > 1:
                made = next((m.place for m in modules_of(ranks[0]) if m.id == looked[0].id), None)
                yield self.observed(
                    ranks[0],
                    made or looked[0].place,
                    f"ranks evaluate models that differ: their buffers are not the same (`{looked[0].name}` and "
                    "others)",
                    cause="each rank's batches update its own buffers, and `broadcast_buffers=False` keeps them apart",
                    advice="leave `broadcast_buffers` on, use `SyncBatchNorm`, or evaluate on one rank",
                    severity="warning",
                    related=[self.beside("evaluates", "each rank with its own buffers", looked[0].place)],
                )
                return

    def _of(self, recording: Recording, rank: RankRecording, first: replica_looks.Look) -> Finding:
        apart = first.apart()
        cause = _cause(recording, first)
        wrapped = any(one.wrapped for row in apart for one in row)
        every = max(len(one.parameters) for one in first.of_ranks)
        some = len(apart) < every
        since = "before the first step" if replica_looks.differ_before(apart) else f"after step {first.step}"
        names = ", ".join(f"`{row[0].name}`" for row in apart[:_NAMES])
        more = f" and {len(apart) - _NAMES} more" if len(apart) > _NAMES else ""
        of = f"{count(len(apart))} of {count(every, 'parameter')}" if some else "all parameters"
        severity: Severity = "error" if wrapped or some or replica_looks.same_gradients(apart) else "warning"
        if not wrapped and _done(recording.members, "exchanged"):
            severity = "info"
        return self.observed(
            rank,
            cause.place or first.of_ranks[0].place,
            f"{of} differ between the ranks {since}: {names}{more}",
            cause=cause.why,
            advice=cause.advice,
            severity=severity,
        )


def _cause(recording: Recording, first: replica_looks.Look) -> _Cause:
    apart, ranks = first.apart(), recording.members
    if replica_looks.differ_before(apart) and (loaded := _done_unevenly(ranks, "loaded")):
        why = "the parameters differ before the first step: not all ranks have loaded the same state"
        return _Cause(why, "load the state on every rank, or broadcast what rank 0 has loaded", loaded)
    if len({tuple(one.rates) for one in first.of_ranks}) > 1:
        shown = ", ".join(f"{rate:g}" for rate in sorted({one.rates[0] for one in first.of_ranks if one.rates}))
        why = f"the learning rates differ: the ranks have {shown} in step {first.step}"
        advice = "step the scheduler, and set learning rates, on every rank alike"
        return _Cause(why, advice, _done_unevenly(ranks, "schedule") or _done(ranks, "schedule"))
    if replica_looks.differ_before(apart):
        why = "the parameters differ before the first step: each rank has initialized its own"
        advice = "seed all ranks alike before the model is made, or broadcast rank 0's parameters (DDP does so)"
        return _Cause(why, advice, _other_seed(ranks))
    if replica_looks.same_gradients(apart):
        why = "the ranks have the same gradients in this step, so that the optimizers' state or the update differs"
        return _Cause(why, "load the same optimizer state and use the same update on every rank")
    return _of_gradients(recording, first)


def _of_gradients(recording: Recording, first: replica_looks.Look) -> _Cause:
    """Why gradients differ that were to be the same."""
    apart, ranks = first.apart(), recording.members
    if any(one.wrapped for row in apart for one in row):
        return _of_wrapped(ranks)
    if first.sharded():
        why = "the model is sharded, and these parameters are not part of it: nobody reduces their gradients"
        advice = "call `fully_shard` on the whole model as well, after its parts"
        return _Cause(why, advice, first_call(recording, "fully_shard"))
    if _done(ranks, "exchanged"):
        why = (
            "ranks exchange tensors by `all_to_all`: experts of one rank only differ by design, other parameters do not"
        )
        return _Cause(why, "reduce the gradients of all parameters that every rank is to have")
    if len(apart) < len(first.rows):
        why = "the ranks' gradients of these parameters differ before the step, while those of the others are the same"
        advice = (
            "reduce the gradients of all parameters (`model.parameters()`); wrap the model after the last was added"
        )
        return _Cause(why, advice, _done(ranks, "added") or _wrapped_at(ranks, first))
    why = "the ranks' gradients differ as the step begins: they were not averaged, or were changed afterwards"
    return _Cause(why, "wrap the model in DistributedDataParallel, or all-reduce every gradient right before the step")


def _of_wrapped(ranks: list[RankRecording]) -> _Cause:
    """Why DistributedDataParallel did not make gradients the same."""
    why = "DistributedDataParallel has not reduced their gradients: "
    if (around := _done(ranks, "around")) is not None:
        advice = "call the wrapped model itself (`model(x)`, not `model.module(x)`)"
        return _Cause(f"{why}its own forward was not called", advice, around)
    if (converted := _done(ranks, "converted")) is not None:
        advice = "wrap the model after it was moved or converted, and convert a copy for other uses"
        return _Cause(f"{why}it listens to the parameters as they were before they were converted", advice, converted)
    aside = _done(ranks, "unsynchronized")
    if aside is not None:
        advice = "let the forward pass of the last micro-batch run outside `no_sync`, with its backward"
        return _Cause(
            f"{why}a forward pass ran with synchronization off, which decides for its backward", advice, aside
        )
    if any(passes.passes for one in ranks for passes in one.all(records.ranks.SynchronizedPasses)):
        why = (
            "DistributedDataParallel has averaged gradients, and they differ as the step begins: a communication hook, "
        )
        why += "what connects the ranks, or a change on one rank (clipping, noise) has made them differ"
        return _Cause(why, "compare gradients right after backward and before the step, with and without the hook")
    return _Cause(f"{why}no pass of its own has led to them", "call the wrapped model itself, in each step")


def _done(ranks: list[RankRecording], kind: records.ranks.ActKind) -> Place | None:
    """The last line on which some rank did this."""
    return next(
        (act.places[0] for one in ranks for act in reversed(list(one.all(records.ranks.OwnAct))) if act.kind == kind),
        None,
    )


def _done_unevenly(ranks: list[RankRecording], kind: records.ranks.ActKind) -> Place | None:
    """The line on which ranks did this least equally often."""
    times = [
        Counter({act.places[0]: act.times for act in one.all(records.ranks.OwnAct) if act.kind == kind})
        for one in ranks
    ]
    spread = {place: max(t[place] for t in times) - min(t[place] for t in times) for t in times for place in t}
    return max(spread, key=lambda place: spread[place]) if any(spread.values()) else None


def _other_seed(ranks: list[RankRecording]) -> Place | None:
    """The line that made the first seed that is not the same everywhere. By chance a rank's own may be that of a caller
    as well: the shortest way is the line's."""
    seeds = [[act for act in one.all(records.ranks.OwnAct) if act.kind == "seed"] for one in ranks]
    for acts in zip(*seeds, strict=False):
        if len({act.value for act in acts}) > 1:
            shortest: list[Place] = min((act.places for act in acts), key=len)
            return shortest[-1]
    return None


def _wrapped_at(ranks: list[RankRecording], first: replica_looks.Look) -> Place | None:
    """Where others of the optimizer's parameters were wrapped, if they were."""
    if not any(one.wrapped for row in first.rows for one in row):
        return None
    return next((module.place for one in ranks for module in modules_of(one)), None)
