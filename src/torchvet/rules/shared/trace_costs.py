"""What rules that read traces share: findings are graded by the seconds that a step would be shorter by, at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from torchvet.formatting import size
from torchvet.rules.core import grading
from torchvet.rules.kit import Finding, Location, Measured, Related, Remedy, Rule, Severity, Trace

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import Cost, RankTrace, Where

__all__ = ["LEAST_SHARE", "Worst", "ms", "observed", "of_step", "percent", "share_of", "size", "where_text", "worst"]

LEAST_SHARE = 0.01
"""Of the step: what costs less is no finding."""


class Worst(NamedTuple):
    """The rank that something costs most, what it costs there in seconds per step, and on how many it counts.

    No number of ranks where the fault is one rank's by nature.
    """

    rank: RankTrace
    seconds: float
    ranks: int


def worst(trace: Trace, seconds: Callable[[RankTrace], float]) -> Worst | None:
    """None where it is below the threshold on every rank."""
    costs = [(seconds(r), r) for r in trace.ranks if r.steps is not None]
    counting = [(s, r) for s, r in costs if r.steps is not None and s >= LEAST_SHARE * r.steps.seconds and s > 0]
    if not counting:
        return None
    most, rank = max(counting, key=lambda c: c[0])
    return Worst(rank, most, len(counting))


def share_of(rank: RankTrace, seconds: float) -> float:
    """A cost's part of the step, from 0 to 1."""
    return min(1.0, seconds / rank.steps.seconds) if rank.steps is not None and rank.steps.seconds else 0.0


def ms(seconds: float) -> str:
    """A duration within a step: `12.3 ms`, `450 us`, `1.24 s`."""
    if seconds >= 0.9995:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 0.0009995 else f"{seconds * 1e6:.0f} us"


def of_step(rank: RankTrace, seconds: float) -> str:
    """`12.3 ms of a step of 80.0 ms (15 %)`."""
    step = rank.steps.seconds if rank.steps is not None else 0.0
    return f"{ms(seconds)} of a step of {ms(step)} ({percent(share_of(rank, seconds))})"


def percent(share: float) -> str:
    """A share from 0 to 1 as a whole percentage."""
    return "< 1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def where_text(where: Where | None, phase: str = "") -> str:
    """` in \\`evaluate\\` (train.py)`; the phase where the trace knows no function."""
    if where is not None:
        return f" in `{where.function}` ({where.path}:{where.line})"
    return f" in the {phase} phase" if phase and phase != "other" else ""


def location_of(where: Where | None) -> Location | None:
    """The function, at the line that the trace gives for it."""
    return Location(path=where.path, line=max(1, where.line), function=where.function) if where is not None else None


def observed(
    rule: Rule, found: Worst, trace: Trace, *, message: str, cause: str, advice: str, cost: Cost | None = None,
    severity: Severity | None = None, related: list[Related] | None = None, bytes_moved: float | None = None,
) -> Finding:  # fmt: skip
    """A finding on the worst rank; graded by its share of the step unless a severity is given."""
    rank, share = found.rank, share_of(found.rank, found.seconds)
    where = cost.where if cost is not None else None
    if where is not None and not where.exact:
        cause += f"; the trace names the function {where.function}, not the line in it"
    if len(trace.ranks) > 1 and found.ranks > 0:
        message += f" (on {found.ranks} of {len(trace.ranks)} ranks, most on this one)"
    return Finding(
        code=rule.code, name=rule.name, severity=severity or grading.of_share(share), evidence="observed",
        message=message, location=location_of(where), cause=cause, remedy=Remedy(summary=advice),
        related=related or [], rank=rank.rank if len(trace.ranks) > 1 else None,
        device=f"cuda:{rank.gpu.device}" if rank.gpu is not None and rank.gpu.device.isdigit() else None,
        measured=Measured(seconds_per_step=found.seconds, share=share, steps=rank.steps.count if rank.steps else None),
    )  # fmt: skip
