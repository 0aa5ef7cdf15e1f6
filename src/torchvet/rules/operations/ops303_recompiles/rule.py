"""OPS303: torch.compile compiles again while training."""

from __future__ import annotations

from torchvet.rules.kit import Finding, Iterator, Rule, Trace
from torchvet.rules.shared import trace_costs


class Recompiles(Rule):
    """torch.compile compiles again in the middle of training."""

    code = "OPS303"
    name = "recompiles"
    summary = "torch.compile compiles again in the middle of training"
    severity = "warning"

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """Compilation within the steps that were profiled, which are none of the first."""
        found = trace_costs.worst(trace, lambda r: r.compiling.seconds if r.compiling is not None else 0.0)
        if found is None or found.rank.compiling is None or found.rank.steps is None:
            return
        rank, compiling = found.rank, found.rank.compiling
        often = f"in {sum(found.rank.compiled_steps)} of {found.rank.steps.count} steps"
        yield trace_costs.observed(
            self, found, trace, cost=compiling,
            message=f"torch.compile compiles {often}; that takes {trace_costs.of_step(rank, compiling.duration)}",
            cause="a guard of the compiled code failed: a size, a Python number or a module's state has changed",
            advice="TORCH_LOGS=recompiles names the guard; make the size dynamic or constant, the number a tensor",
        )  # fmt: skip
