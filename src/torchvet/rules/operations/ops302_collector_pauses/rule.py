"""OPS302: Python's garbage collector stops the program."""

from __future__ import annotations

from torchvet.rules.kit import Finding
from torchvet.rules.shared.trace_costs import TraceRule, Worst


class CollectorPauses(TraceRule):
    """Python's garbage collector stops the step."""

    severity = "info"
    lost_in = "collector"

    def slow(self, found: Worst) -> Finding:
        """Collections that the trace shows: those called for, and with stacks the automatic ones as well."""
        message = f"Python's garbage collector takes {found.of_step(found.costs[0].duration)}{found.where()}"
        cause = "a full collection visits every container object of the process, and no Python runs meanwhile"
        advice = "take gc.collect() out of the step; or gc.freeze() after the set-up and collect rarely"
        return self.loses(found, message, cause, advice)
