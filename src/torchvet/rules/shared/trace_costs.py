"""What rules that read traces share: findings are graded by the seconds that a step would be shorter by, at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torchvet.rules.core import grading
from torchvet.rules.kit import Finding, Findings, Location, Measured, Remedy, Rule, Severity, Trace, ms, percent

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import Cost, RankTrace, Where

LEAST_SHARE = 0.01
"""Of the step: what costs less is no finding."""


class Worst(NamedTuple):
    """The rank that something costs most, what it costs there in seconds per step, and on how many ranks it counts.

    `counting` is 0 where the fault is one rank's by nature. `costs` are the places that it comes from, largest first.
    """

    trace: Trace
    rank: RankTrace
    seconds: float
    counting: int
    costs: Sequence[Cost] = ()

    @property
    def share(self) -> float:
        """The cost's part of the step, from 0 to 1."""
        return _share(self.rank, self.seconds)

    def of_step(self, seconds: float | None = None) -> str:
        """`12.3 ms of a step of 80.0 ms (15 %)`, of the whole cost unless seconds are given."""
        seconds = self.seconds if seconds is None else seconds
        step = self.rank.steps.seconds if self.rank.steps is not None else 0.0
        whole = f"a step of {ms(step)}" if self.known else f"the trace's {ms(step)}"
        return f"{ms(seconds)} of {whole} ({percent(_share(self.rank, seconds))})"

    @property
    def known(self) -> bool:
        """Whether the trace's steps are known: without them nothing is said per step."""
        return self.rank.steps is not None and self.rank.steps.known

    @property
    def a_step(self) -> str:
        """` a step`, to be said after a number; nothing where steps are not known."""
        return " a step" if self.known else ""

    def where(self) -> str:
        """` in \\`evaluate\\` (train.py:12)` for the largest cost; its phase where the trace names no function."""
        # Largest first.
        top = self.costs[0]
        if top.where is not None:
            return f" in `{top.where.function}` ({top.where.path}:{top.where.line})"
        return f" in the {top.phase} phase" if top.phase and top.phase != "other" else ""

    def slowed(self, what: str) -> tuple[str, Severity | None]:
        """What to add to a cause, and the severity, where the profiler's own settings have slowed this down."""
        settings = ", ".join(self.rank.slowed)
        if not settings:
            return "", None
        # What the profiler costs must not be told as the program's fault.
        return f"; the profile was recorded with {settings}, which slows {what}: record again without", "info"


class TraceRule(Rule):
    """A rule about what costs a step time in a profiler's trace: `costs` finds it, `slow` puts it into words."""

    lost_in: ClassVar[str]
    """The field of `RankTrace` that holds what costs the time."""

    def costs(self, rank: RankTrace) -> Sequence[Cost]:
        """The places of one rank that cost the time, largest first."""
        found: Sequence[Cost] | Cost | None = getattr(rank, self.lost_in)
        # Some fields hold one cost, others several.
        return found if isinstance(found, Sequence) else [found] if found is not None else []

    def seconds_lost(self, rank: RankTrace) -> float:
        """What a step of one rank would be shorter by, at most."""
        return sum(cost.seconds for cost in self.costs(rank))

    def slow(self, found: Worst) -> Finding:
        """The finding for the rank that loses most."""
        raise NotImplementedError

    def in_trace(self, trace: Trace) -> Findings:
        """One finding, on the rank that loses most, where a step loses enough on any."""
        found = _worst(trace, self.seconds_lost)
        if found is not None:
            yield self.slow(found._replace(costs=self.costs(found.rank)))

    def loses(self, found: Worst, message: str, cause: str, advice: str, severity: Severity | None = None) -> Finding:
        """A finding on the worst rank, at the largest cost; graded by its share of the step unless a severity is
        given."""
        rank, ranks = found.rank, len(found.trace.ranks)
        where = found.costs[0].where if found.costs else None
        # With `with_stack` a profiler attributes operators to the enclosing `def`, so that no line can be named.
        if where is not None and not where.exact:
            cause += f"; the trace names the function {where.function}, not the line in it"
        if ranks > 1 and found.counting:
            message += f" (on {found.counting} of {ranks} ranks, most on this one)"
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity or grading.of_share(found.share),
            evidence="observed",
            message=message,
            location=_location(where),
            cause=cause,
            remedy=Remedy(summary=advice),
            rank=rank.rank if ranks > 1 else None,
            device=f"cuda:{rank.gpu.device}" if rank.gpu is not None and rank.gpu.device.isdigit() else None,
            measured=Measured(
                seconds_per_step=found.seconds,
                share=found.share,
                steps=rank.steps.count if rank.steps is not None and found.known else None,
            ),
        )


def _worst(trace: Trace, seconds: Callable[[RankTrace], float]) -> Worst | None:
    """None where the cost is below the threshold on every rank."""
    costs = [(seconds(rank), rank) for rank in trace.ranks if rank.steps is not None]
    # By rank, each against its own step.
    counting = [(lost, rank) for lost, rank in costs if lost > 0 and _share(rank, lost) >= LEAST_SHARE]
    if not counting:
        return None
    # The rank that loses most: where ranks wait for each other, the others are no faster than it.
    most, rank = max(counting, key=lambda cost: cost[0])
    return Worst(trace, rank, most, len(counting))


def _share(rank: RankTrace, seconds: float) -> float:
    return min(1.0, seconds / rank.steps.seconds) if rank.steps is not None and rank.steps.seconds else 0.0


def _location(where: Where | None) -> Location | None:
    # 0 stands for a line that the trace does not know.
    return Location(path=where.path, line=max(1, where.line), function=where.function) if where is not None else None
