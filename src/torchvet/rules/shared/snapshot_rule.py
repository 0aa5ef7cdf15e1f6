"""The common part of findings from CUDA memory snapshots.

A snapshot names lines that allocate, never names that hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules.kit import Finding, Location, Measured, Related, Remedy, Rule, Severity, grading, size

if TYPE_CHECKING:
    from torchvet.snapshots.growth import Growth, Leak
    from torchvet.snapshots.memory import DeviceMemory
    from torchvet.snapshots.places import Place
    from torchvet.snapshots.state_at import Row

ASSUMED_LIMIT = 80 << 30
"""What growth is graded against where neither the user nor an out-of-memory error says how much there is: a snapshot
does not. 80 GiB is what the largest common cards had; a smaller one runs out sooner."""


def in_memory(
    rule: Rule,
    memory: DeviceMemory,
    *,
    severity: Severity,
    message: str,
    place: Place | None,
    cause: str,
    advice: str,
    measured: Measured,
    related: list[Related] | None = None,
) -> Finding:
    """A finding on a device of a snapshot."""
    return Finding(
        code=rule.code, name=rule.name, severity=severity, evidence="observed", message=message,
        location=location_of(place), cause=cause, remedy=Remedy(summary=advice), related=related or [],
        measured=measured, device=f"cuda:{memory.device}",
    )  # fmt: skip


def location_of(place: Place | None) -> Location | None:
    """A line as a finding has it; lines that torch did not know are 0, and no location."""
    if place is None or place.line < 1:
        return None
    return Location(path=place.path, line=place.line, function=place.function or None)


def named(place: Place | None, otherwise: str = "code without a Python line") -> str:
    """A line as it stands in a message."""
    return place.text if place is not None else otherwise


def allocated(row: Row) -> Related:
    """A row of a table as another place of a finding."""
    note = f"{row.note} this line, " if row.note else ""
    operator = f"{row.operator}, " if row.operator else ""
    number = f"{row.blocks:,} {'block' if row.blocks == 1 else 'blocks'}"
    message = f"{note}{operator}{row.category}: {size(row.bytes)} in {number}"
    return Rule.beside("allocated", message, location_of(row.place))


def limit_of(memory: DeviceMemory) -> int | None:
    """The memory in force: what the user said, else what an out-of-memory error showed; None where neither."""
    return memory.limit or (memory.failure.capacity if memory.failure else None)


def leaking(rule: Rule, memory: DeviceMemory, leaks: list[Leak], growth: Growth, cause: str, advice: str) -> Finding:
    """One finding for leaks that have one cause; the largest gives the line."""
    per_step = sum(leak.per_step for leak in leaks)
    left = sum(leak.total for leak in leaks)
    # By step of the stretch that was compared, which is not the whole recording.
    blocks = sum(leak.blocks for leak in leaks) / growth.steps
    exhausted = _ends_at(memory, per_step)
    known = limit_of(memory) is not None
    return in_memory(
        rule, memory, severity=grading.of_growth(len(memory.phases.boundaries), exhausted), place=leaks[0].place,
        message=f"what {named(leaks[0].place)} allocates stays: {size(per_step)} more in use every step, "
        f"{size(left)} at the end of the recording",
        cause=cause, advice=advice, related=[_line(leak) for leak in leaks[1:6]],
        measured=Measured(
            bytes_per_step=per_step, tensors_per_step=blocks, bytes=left, steps=len(memory.phases.boundaries),
            exhausted_at_step=exhausted if known else None,
        ),
    )  # fmt: skip


def _ends_at(memory: DeviceMemory, per_step: float) -> int | None:
    """The step at which memory ended, or will."""
    if memory.failure is not None:
        # It has ended: nothing to forecast.
        return memory.phases.step(memory.failure.at)
    return memory.exhausted_at(per_step, memory.limit or ASSUMED_LIMIT)


def _line(leak: Leak) -> Related:
    return Rule.beside("allocated", f"{size(leak.per_step)} of it per step", location_of(leak.place))
