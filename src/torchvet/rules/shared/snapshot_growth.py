"""Leaks in a snapshot as findings: which line's memory stays, how much a step, and until when that can go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules.core import grading
from torchvet.rules.kit import Finding, Measured, Related, Rule
from torchvet.rules.shared.number_format import size
from torchvet.rules.shared.snapshot_rule import ASSUMED_LIMIT, in_memory, limit_of, location_of, named

if TYPE_CHECKING:
    from torchvet.snapshots.growth import Growth, Leak
    from torchvet.snapshots.memory import DeviceMemory


def leaking(rule: Rule, memory: DeviceMemory, leaks: list[Leak], growth: Growth, cause: str, advice: str) -> Finding:
    """One finding for leaks that have one cause; the largest gives the line."""
    per_step = sum(leak.per_step for leak in leaks)
    left = sum(leak.total for leak in leaks)
    blocks = sum(leak.blocks for leak in leaks) / growth.steps
    exhausted, known = _exhausted(memory, per_step)
    verb = "ran out" if memory.failure is not None else "is exhausted"
    fate = f"; memory {verb} at step {exhausted:,}" if known and exhausted is not None else ""
    return in_memory(
        rule, memory, severity=grading.of_growth(len(memory.phases.boundaries), exhausted), place=leaks[0].place,
        message=f"what {named(leaks[0].place)} allocates stays: {size(per_step)} more in use every step, "
        f"{size(left)} at the end of the recording{fate}",
        cause=cause, advice=advice, related=[_line(leak) for leak in leaks[1:6]],
        measured=Measured(
            bytes_per_step=per_step, tensors_per_step=blocks, bytes=left, steps=growth.steps,
            exhausted_at_step=exhausted if known else None,
        ),
    )  # fmt: skip


def _exhausted(memory: DeviceMemory, per_step: float) -> tuple[int | None, bool]:
    """The step at which the limit is reached, and whether the limit is known rather than assumed."""
    if memory.failure is not None:
        return memory.phases.step(memory.failure.at), True
    limit = limit_of(memory)
    used = memory.end.bytes
    left = max(0, (limit or ASSUMED_LIMIT) - used)
    if per_step <= 0:
        return None, False
    return len(memory.phases.boundaries) + int(left // per_step), limit is not None


def _line(leak: Leak) -> Related:
    return Rule.beside("allocated", f"{size(leak.per_step)} of it per step", location_of(leak.place))
