"""Rows of a trace's tables: costs, steps, phases, the device's activities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchvet.exporting.plain import number

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import Cost, RankTrace

COSTS = (
    "rank", "kind", "what", "phase", "seconds_per_step", "duration_per_step", "count_per_step", "bytes_per_step",
    "function", "path", "line", "exact",
)  # fmt: skip
"""`seconds_per_step` is what a step would be shorter by at most, `duration_per_step` how long it took itself, hidden or
not. `line` is the statement's where `exact` is true, else the `def`'s."""


def kinds_of(rank: RankTrace) -> Iterator[tuple[str, Cost]]:
    """All costs of a digest with the kind that each is of."""
    listed = {
        "wait": rank.syncs, "transfer": rank.transfers, "round trip": rank.round_trips, "layout": rank.layouts,
        "misaligned": rank.misaligned, "element loop": rank.element_loops,
    }  # fmt: skip
    for kind, costs in listed.items():
        yield from ((kind, cost) for cost in costs)
    for kind, found in (("loader", rank.loader), ("collector", rank.collector), ("compile", rank.compiling)):
        if found is not None:
            yield kind, found


def cost_rows(rank: RankTrace) -> Iterator[dict[str, Any]]:
    """One row a cost, with the columns of `COSTS`."""
    for kind, cost in kinds_of(rank):
        where = cost.where
        yield {
            "rank": rank.rank, "kind": kind, "what": cost.what, "phase": cost.phase or None,
            "seconds_per_step": number(cost.seconds), "duration_per_step": number(cost.duration),
            "count_per_step": number(cost.count), "bytes_per_step": number(cost.bytes),
            "function": where.function if where is not None else None,
            "path": where.path if where is not None else None,
            "line": where.line if where is not None else None, "exact": where.exact if where is not None else None,
        }  # fmt: skip


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
