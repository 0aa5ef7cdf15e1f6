"""Why parameters that should be the same on all ranks are not: what DST110 tells as the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from torchvet.recording.records.ranks import ActKind, OwnAct, SynchronizedPasses
from torchvet.rules.distributed._in_text import call_with, first_call, given_to
from torchvet.rules.distributed._modules import modules_of
from torchvet.rules.distributed._replica_looks import (
    Look,
    clipping_parts,
    differ_before,
    parted_after_pass,
    same_gradients,
    wrapped_at_times,
)
from torchvet.rules.kit import Location, Place, RankRecording, Recording


class Cause(NamedTuple):
    """Why, what to do about it, and the line to look at where it is not the optimizer's step."""

    why: str
    advice: str
    place: Place | Location | None = None


def cause_of(recording: Recording, first: Look, looks: Sequence[Look] = ()) -> Cause:
    """What has made the ranks' parameters differ, as the `first` of the looks shows them."""
    apart, ranks = first.apart(), recording.members
    if differ_before(apart) and (loaded := _done_unevenly(ranks, "loaded")):
        why = "the parameters differ before the first step: not all ranks have loaded the same state"
        return Cause(why, "load the state on every rank, or broadcast what rank 0 has loaded", loaded)
    if len({tuple(one.rates) for one in first.of_ranks}) > 1:
        shown = ", ".join(f"{rate:g}" for rate in sorted({one.rates[0] for one in first.of_ranks if one.rates}))
        why = f"the learning rates differ: the ranks have {shown} in step {first.step}"
        advice = "step the scheduler, and set learning rates, on every rank alike"
        return Cause(why, advice, _done_unevenly(ranks, "schedule") or done(ranks, "schedule"))
    if differ_before(apart):
        why = "the parameters differ before the first step: each rank has initialized its own"
        advice = "seed all ranks alike before the model is made, or broadcast rank 0's parameters (DDP does so)"
        return Cause(why, advice, _other_seed(ranks))
    if same_gradients(apart):
        why = (
            "the ranks have the same gradients in this step: the optimizers' state or the update differs, or a rank "
            "changed them"
        )
        return Cause(
            why,
            "load the same optimizer state and use the same update on every rank; change parameters on all ranks alike",
        )
    return _of_gradients(recording, first, looks)


def _of_gradients(recording: Recording, first: Look, looks: Sequence[Look]) -> Cause:
    """Why gradients differ that were to be the same."""
    apart, ranks = first.apart(), recording.members
    if clipping_parts(apart):
        return _of_clipping(first)
    if any(one.wrapped for row in apart for one in row):
        return _of_wrapped(ranks, parted_after_pass(apart))
    if first.sharded():
        return _of_sharded(recording)
    if all(one.late for row in apart for one in row):
        return _of_late(recording, apart[0][0].name)
    if done(ranks, "exchanged"):
        why = (
            "ranks exchange tensors by `all_to_all`: experts of one rank only differ by design, other parameters do not"
        )
        return Cause(why, "reduce the gradients of all parameters that every rank is to have")
    if len(apart) < len(first.rows):
        why = "the ranks' gradients of these parameters differ before the step, while those of the others are the same"
        advice = (
            "reduce the gradients of all parameters (`model.parameters()`); wrap the model after the last was added"
        )
        return Cause(why, advice, done(ranks, "added") or _wrapped_at(ranks, first))
    if wrapped_at_times(first, looks):
        why = "the ranks' gradients differ as the step begins: DistributedDataParallel has these parameters in other "
        why += "steps only"
        advice = "wrap the model once, before the first step, and call the wrapped model in every step"
        return Cause(why, advice, _wraps(ranks))
    why = "the ranks' gradients differ as the step begins: they were not averaged, or were changed afterwards"
    return Cause(why, "wrap the model in DistributedDataParallel, or all-reduce every gradient right before the step")


def _of_clipping(first: Look) -> Cause:
    """Gradients were the same until they were clipped."""
    clip = [one.clipped for one in first.of_ranks]
    place = next((place for place in clip if place is not None), None)
    if None in clip:
        some = [number for number, at in zip(first.numbers, clip, strict=False) if at is not None]
        who = f"only rank {some[0]}" if len(some) == 1 else f"only ranks {', '.join(map(str, some))}"
        why = f"the gradients were the same on all ranks until {who} clipped them"
        return Cause(why, "clip on every rank, by the same norm", place)
    why = "the gradients were the same on all ranks until each rank clipped them, by a norm of its own"
    advice = "clip by one norm for all ranks: sum the squares of the ranks' parts before the root is taken"
    return Cause(why, advice, place)


def _of_sharded(recording: Recording) -> Cause:
    """Some parameters are shards, and others are not."""
    why = "the model is sharded, and these parameters are not part of it: nobody reduces their gradients"
    ignores = call_with(recording, "fully_shard", "ignored_params")
    if ignores is not None:
        advice = "take them out of `ignored_params`, or reduce their gradients before the step"
        return Cause(why, advice, ignores)
    advice = "call `fully_shard` on the whole model as well, after its parts"
    return Cause(why, advice, first_call(recording, "fully_shard"))


def _of_late(recording: Recording, parameter: str) -> Cause:
    """DistributedDataParallel has the parameters that were there when it was made, and no others."""
    why = "the parameters came into the model after DistributedDataParallel had wrapped it: it reduces the earlier ones"
    advice = "move, convert or change the model first, and wrap it then"
    ranks = recording.members
    seen = done(ranks, "converted") or done(ranks, "added")
    return Cause(why, advice, seen or given_to(recording, parameter) or _wraps(ranks))


def _of_wrapped(ranks: list[RankRecording], after_pass: bool | None) -> Cause:
    """Why DistributedDataParallel did not make gradients the same."""
    why = "DistributedDataParallel has not reduced their gradients: "
    if (around := done(ranks, "around")) is not None:
        advice = "call the wrapped model itself (`model(x)`, not `model.module(x)`)"
        return Cause(f"{why}its own forward was not called", advice, around)
    if (converted := done(ranks, "converted")) is not None:
        advice = "wrap the model after it was moved or converted, and convert a copy for other uses"
        return Cause(f"{why}it listens to the parameters as they were before they were converted", advice, converted)
    aside = done(ranks, "unsynchronized")
    if aside is not None:
        advice = "let the forward pass of the last micro-batch run outside `no_sync`, with its backward"
        return Cause(f"{why}a forward pass ran with synchronization off, which decides for its backward", advice, aside)
    if any(passes.passes for one in ranks for passes in one.all(SynchronizedPasses)):
        why = "DistributedDataParallel has averaged gradients, "
        if after_pass:
            why += "and they were the same when the backward pass had ended: a change on one rank has made them differ"
            return Cause(why, "do what changes gradients (clipping, noise, scaling) alike on every rank")
        if after_pass is False:
            why += "and they differ when the backward pass has ended: a communication hook, or what connects the ranks"
            return Cause(why, "train without the hook, and test the links between the devices (`all_reduce_perf`)")
        why += "and they differ as the step begins: a communication hook, "
        why += "what connects the ranks, or a change on one rank (clipping, noise) has made them differ"
        return Cause(why, "compare gradients right after backward and before the step, with and without the hook")
    return Cause(f"{why}no pass of its own has led to them", "call the wrapped model itself, in each step")


def done(ranks: list[RankRecording], kind: ActKind) -> Place | None:
    """The last line on which some rank did this."""
    return next((act.places[0] for one in ranks for act in reversed(list(one.all(OwnAct))) if act.kind == kind), None)


def _done_unevenly(ranks: list[RankRecording], kind: ActKind) -> Place | None:
    """The line on which ranks did this least equally often."""
    times = [Counter({act.places[0]: act.times for act in one.all(OwnAct) if act.kind == kind}) for one in ranks]
    spread = {place: max(t[place] for t in times) - min(t[place] for t in times) for t in times for place in t}
    return max(spread, key=lambda place: spread[place]) if any(spread.values()) else None


def _other_seed(ranks: list[RankRecording]) -> Place | None:
    """The line that made the first seed that is not the same everywhere. By chance a rank's own may be that of a caller
    as well: the shortest way is the line's."""
    seeds = [[act for act in one.all(OwnAct) if act.kind == "seed"] for one in ranks]
    for acts in zip(*seeds, strict=False):
        if len({act.value for act in acts}) > 1:
            shortest: list[Place] = min((act.places for act in acts), key=len)
            return shortest[-1]
    return None


def _wrapped_at(ranks: list[RankRecording], first: Look) -> Place | None:
    """Where others of the optimizer's parameters were wrapped, if they were."""
    if not any(one.wrapped for row in first.rows for one in row):
        return None
    return _wraps(ranks)


def _wraps(ranks: list[RankRecording]) -> Place | None:
    return next((module.place for one in ranks for module in modules_of(one)), None)
