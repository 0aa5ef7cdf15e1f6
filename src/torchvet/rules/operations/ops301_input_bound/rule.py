"""OPS301: the step waits for its data."""

from __future__ import annotations

from torchvet.rules.kit import Finding
from torchvet.rules.shared.trace_costs import TraceRule, Worst


class InputBound(TraceRule):
    """The step waits for data that the loader has not ready."""

    severity = "warning"
    lost_in = "loader"

    def slow(self, found: Worst) -> Finding:
        """By the time that the device was idle while the loader was waited for; without a device, by the wait."""
        loader = found.costs[0]
        idle = f"; the device is idle for {found.of_step()}" if found.rank.gpu is not None else ""
        message = f"the loader takes {found.of_step(loader.duration)}{idle}"
        if "_SingleProcess" in loader.what:
            cause = "the batch is made in the training process (num_workers=0), while nothing else happens"
            advice = "give the DataLoader num_workers, and make __getitem__ cheaper"
            return self.loses(found, message, cause, advice)
        cause = "the loader's workers do not keep up with the steps"
        advice = "more workers, prefetch_factor, or less work in __getitem__"
        return self.loses(found, message, cause, advice)
