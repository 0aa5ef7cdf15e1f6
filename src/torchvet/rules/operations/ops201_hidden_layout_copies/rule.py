"""OPS201: copies that only change the layout of a tensor."""

from __future__ import annotations

from torchvet.formatting import ms
from torchvet.rules.kit import Finding
from torchvet.rules.shared.trace_costs import TraceRule, Worst


class HiddenLayoutCopies(TraceRule):
    """Copies that only change a tensor's layout."""

    severity = "info"
    lost_in = "layouts"

    def slow(self, found: Worst) -> Finding:
        """Conversions between layouts, and kernels that `aten::contiguous` launched, by the time that they take."""
        parts = ", ".join(f"{cost.what} {ms(cost.seconds)}" for cost in found.costs)
        message = f"copies that change a layout take {found.of_step()}{found.where()}: {parts}"
        cause = "an operation got its tensor in a layout that it does not work on, or .contiguous() was called"
        advice = "keep one layout: channels_last for model and input, or operate over the other dimension"
        return self.loses(found, message, cause, advice)
