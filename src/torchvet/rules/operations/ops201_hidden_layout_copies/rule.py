"""OPS201: copies that only change the layout of a tensor."""

from __future__ import annotations

from torchvet.rules.kit import Finding, Iterator, Rule, Trace
from torchvet.rules.shared import trace_costs


class HiddenLayoutCopies(Rule):
    """Copies that only change a tensor's layout."""

    code = "OPS201"
    name = "hidden-layout-copies"
    summary = "Copies that only change a tensor's layout"
    severity = "info"

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """Conversions between layouts, and kernels that `aten::contiguous` launched, by the time that they take."""
        found = trace_costs.worst(trace, lambda r: sum(c.seconds for c in r.layouts))
        if found is None:
            return
        rank = found.rank
        top = rank.layouts[0]
        parts = ", ".join(f"{c.what} {trace_costs.ms(c.seconds)}" for c in rank.layouts)
        yield trace_costs.observed(
            self, found, trace, cost=top,
            message=f"copies that change a layout take {trace_costs.of_step(rank, found.seconds)}"
            f"{trace_costs.where_text(top.where, top.phase)}: {parts}",
            cause="an operation got its tensor in a layout that it does not work on, or .contiguous() was called",
            advice="keep one layout: channels_last for model and input, or operate over the other dimension",
        )  # fmt: skip
