"""OPS302: Python's garbage collector stops the program."""

from __future__ import annotations

from torchvet.rules.kit import Finding, Iterator, Rule, Trace
from torchvet.rules.shared import trace_costs


class CollectorPauses(Rule):
    """Python's garbage collector stops the step."""

    code = "OPS302"
    name = "collector-pauses"
    summary = "Python's garbage collector stops the step"
    severity = "info"

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """Collections that the trace shows: those called for, and with stacks the automatic ones as well."""
        found = trace_costs.worst(trace, lambda r: r.collector.seconds if r.collector is not None else 0.0)
        if found is None or found.rank.collector is None:
            return
        rank, pauses = found.rank, found.rank.collector
        yield trace_costs.observed(
            self, found, trace, cost=pauses,
            message=f"Python's garbage collector takes {trace_costs.of_step(rank, pauses.duration)}"
            f"{trace_costs.where_text(pauses.where)}",
            cause="a full collection visits every container object of the process, and no Python runs meanwhile",
            advice="take gc.collect() out of the step; or gc.freeze() after the set-up and collect rarely",
        )  # fmt: skip
