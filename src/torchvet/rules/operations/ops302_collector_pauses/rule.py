"""OPS302: Python's garbage collector stops the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules.kit import Finding, Iterator, Measured, RankRecording, Recording
from torchvet.rules.shared.line_costs import LEAST_SHARE, Cost, real_time
from torchvet.rules.shared.trace_costs import TraceRule, Worst, ms, percent

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_SHARE, _A_STEP, _IN_ALL = 0.1, 0.002, 0.5
"""From which on automatic collections matter. They happen in any program."""
_CAUSE = "a full collection visits every container object of the process, and no Python runs meanwhile"
_RARELY = "call gc.freeze() after the set-up, and gc.disable(); then gc.collect() at an interval"


class CollectorPauses(TraceRule):
    """Python's garbage collector stops the step."""

    severity = "info"
    lost_in = "collector"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Lines that call for collections, by their time; and where there are none, the automatic ones."""
        from torchvet.analysis.host_work import HostWork
        from torchvet.analysis.line_times import operators_of, timing_of

        timing = timing_of(rank) if real_time(rank) else None
        if timing is None:
            return
        called = [work for work in HostWork(timing, operators_of(rank)[1]).works() if work.kind == "collect"]
        for work in called:
            cost = Cost(timing, work.parts)
            if cost.counts:
                message = f"`gc.collect()` takes {cost.of_step()}"
                advice = "take gc.collect() out of the step, or call it at an interval of hundreds of steps"
                yield self.observed(
                    rank,
                    work.statements[0].place,
                    message,
                    cause=f"{_CAUSE}; {cost.without()}",
                    advice=advice,
                    severity=cost.severity(),
                    measured=cost.measured(),
                )
        if not called:
            yield from self._automatic(rank, timing)

    def _automatic(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        from torchvet.analysis.collections import collections_of

        found = collections_of(rank)
        share = min(1.0, found.a_step / timing.step) if found is not None else 0.0
        if found is None or share < LEAST_SHARE:
            return
        matters = share >= _SHARE and found.a_step >= _A_STEP and found.seconds >= _IN_ALL
        message = f"automatic collections of garbage take {ms(found.a_step)} of a step of {ms(timing.step)} "
        yield self.observed(
            rank,
            None,
            message + f"({percent(share)}; {found.number:,} in {found.steps:,} steps)",
            cause=f"{_CAUSE}; the more objects the program keeps, the longer it takes",
            advice=_RARELY,
            severity="warning" if matters else "info",
            measured=Measured(seconds_per_step=found.a_step, share=share, steps=found.steps),
        )

    def slow(self, found: Worst) -> Finding:
        """Collections that the trace shows: those called for, and with stacks the automatic ones as well."""
        message = f"Python's garbage collector takes {found.of_step(found.costs[0].duration)}{found.where()}"
        advice = "take gc.collect() out of the step; or gc.freeze() after the set-up and collect rarely"
        return self.loses(found, message, _CAUSE, advice)
