"""Seconds of a step by what they go to: the host by phase, the device by activity, the costs by phase and function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.exporting.cost_rows import kinds_of
from torchvet.exporting.stacks import Profile, Stack, StackFrame

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import Cost, Gpu, RankTrace


def profiles_of(rank: RankTrace) -> Iterator[Profile]:
    """Up to three profiles a rank. The costs overlap with what the others show and do not add up to a step."""
    whose = f"rank {rank.rank}" if rank.rank is not None else rank.path.replace("\\", "/").rpartition("/")[2]
    phases = [((StackFrame(name),), seconds) for name, seconds in rank.phases.items()]
    yield Profile(f"{whose}: the host's step by phase", "seconds", phases)
    if rank.gpu is not None:
        yield Profile(f"{whose}: the device's step by activity", "seconds", list(_activities(rank.gpu)))
    costs = [(_stack(kind, cost), cost.seconds) for kind, cost in kinds_of(rank)]
    if any(seconds > 0 for _, seconds in costs):
        yield Profile(f"{whose}: what a step would be shorter by, at most", "seconds", costs)


def _activities(gpu: Gpu) -> Iterator[tuple[Stack, float]]:
    yield (StackFrame("compute"),), gpu.compute
    yield (StackFrame("communication alone"),), gpu.communication
    yield (StackFrame("copies alone"),), gpu.copies
    for reason, seconds in gpu.idle.items():
        yield (StackFrame("idle"), StackFrame(f"idle: {reason}")), seconds


def _stack(kind: str, cost: Cost) -> Stack:
    """Phase, what, function. The loader's phase is `data`; what has none is under its kind."""
    phase = cost.phase or ("data" if kind == "loader" else kind)
    where = cost.where
    function = (StackFrame(where.function, where.path, where.line),) if where is not None else ()
    return (StackFrame(phase), StackFrame(cost.what), *function)
