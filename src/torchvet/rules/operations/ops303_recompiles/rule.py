"""OPS303: torch.compile compiles again while training."""

from __future__ import annotations

from torchvet.rules.kit import Finding
from torchvet.rules.shared.trace_costs import TraceRule, Worst


class Recompiles(TraceRule):
    """torch.compile compiles again in the middle of training."""

    severity = "warning"
    lost_in = "compiling"

    def slow(self, found: Worst) -> Finding:
        """Compilation within the steps that were profiled, which are none of the first."""
        compiled = found.rank.compiled_steps
        message = (
            f"torch.compile compiles in {sum(compiled)} of {len(compiled)} steps; that takes "
            f"{found.of_step(found.costs[0].duration)}"
        )
        cause = "a guard of the compiled code failed: a size, a Python number or a module's state has changed"
        advice = "TORCH_LOGS=recompiles names the guard; make the size dynamic or constant, the number a tensor"
        return self.loses(found, message, cause, advice)
