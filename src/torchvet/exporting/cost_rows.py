"""Rows of a trace's tables: costs, steps, phases, the device's activities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchvet.exporting.plain import number
from torchvet.formatting import picked
from torchvet.readers.trace_facts import Cost

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import RankTrace

_KINDS = {
    "wait": "syncs",
    "transfer": "transfers",
    "round trip": "round_trips",
    "layout": "layouts",
    "misaligned": "misaligned",
    "element loop": "element_loops",
    "loader": "loader",
    "collector": "collector",
    "compile": "compiling",
}
"""Where a digest has the costs of each kind: one cost, or a list."""
_AMOUNTS = ("seconds", "duration", "count", "bytes")
COSTS = (
    "rank", "kind", "what", "phase", "seconds_per_step", "duration_per_step", "count_per_step", "bytes_per_step",
    "function", "path", "line", "exact",
)  # fmt: skip
"""`seconds_per_step` is what a step would be shorter by at most, `duration_per_step` how long it took itself, hidden or
not. `line` is the statement's where `exact` is true, else the `def`'s."""


def kinds_of(rank: RankTrace) -> Iterator[tuple[str, Cost]]:
    """All costs of a digest with the kind that each is of."""
    for kind, name in _KINDS.items():
        found = getattr(rank, name)
        listed = [found] if isinstance(found, Cost) else found or []
        yield from ((kind, cost) for cost in listed)


def cost_rows(rank: RankTrace) -> Iterator[dict[str, Any]]:
    """One row a cost, with the columns of `COSTS`."""
    for kind, cost in kinds_of(rank):
        amounts = {f"{name}_per_step": number(getattr(cost, name)) for name in _AMOUNTS}
        where = picked(cost.where, "function", "path", "line", "exact")
        yield {"rank": rank.rank, "kind": kind, "what": cost.what, "phase": cost.phase or None, **amounts, **where}


def other_rows(rank: RankTrace) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of the smaller tables, each with its table's name."""
    if rank.steps is not None:
        for step, seconds in zip(rank.steps.numbers, rank.steps.durations, strict=True):
            yield "steps", {"rank": rank.rank, "step": step, "seconds": number(seconds)}
    for phase, seconds in rank.phases.items():
        yield "phases", {"rank": rank.rank, "phase": phase, "seconds_per_step": number(seconds)}
    gpu = rank.gpu
    if gpu is not None:
        parts = {"compute": gpu.compute, "communication": gpu.communication, "copies": gpu.copies}
        parts |= {f"idle: {reason}": seconds for reason, seconds in gpu.idle.items()}
        for activity, seconds in parts.items():
            yield "activities", {"rank": rank.rank, "activity": activity, "seconds_per_step": number(seconds)}
