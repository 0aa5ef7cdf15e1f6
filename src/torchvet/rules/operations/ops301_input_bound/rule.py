"""OPS301: the step waits for its data."""

from __future__ import annotations

from torchvet.rules.kit import Finding, Iterator, Rule, Trace
from torchvet.rules.shared import trace_costs


class InputBound(Rule):
    """The step waits for data that the loader has not ready."""

    code = "OPS301"
    name = "input-bound"
    summary = "The step waits for data that the loader has not ready"
    severity = "warning"

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """By the time that the device was idle while the loader was waited for; without a device, by the wait."""
        found = trace_costs.worst(trace, lambda r: r.loader.seconds if r.loader is not None else 0.0)
        if found is None or found.rank.loader is None:
            return
        rank, loader = found.rank, found.rank.loader
        idle = f"; the device is idle for {trace_costs.of_step(rank, loader.seconds)}" if rank.gpu is not None else ""
        alone = "_SingleProcess" in loader.what
        yield trace_costs.observed(
            self, found, trace, cost=loader,
            message=f"the loader takes {trace_costs.of_step(rank, loader.duration)}{idle}",
            cause="the batch is made in the training process (num_workers=0), while nothing else happens" if alone
            else "the loader's workers do not keep up with the steps",
            advice="give the DataLoader num_workers, and make __getitem__ cheaper" if alone
            else "more workers, prefetch_factor, or less work in __getitem__",
        )  # fmt: skip
