"""DST103: one rank makes all others wait at the collectives."""

from __future__ import annotations

import msgspec

from torchvet.formatting import ms, percent
from torchvet.rules.kit import Findings, Trace
from torchvet.rules.shared.trace_costs import LEAST_SHARE, TraceRule, Worst


class Straggler(TraceRule):
    """One rank arrives late at the collectives, and all others wait for it."""

    severity = "warning"

    def in_trace(self, trace: Trace) -> Findings:
        """From traces of several ranks: who arrives last as a rule, and for how long the others wait."""
        from torchvet.rules.distributed._arrivals import late_rank

        late = late_rank(trace.ranks)
        if late is None or late.rank.steps is None:
            return
        found = Worst(trace, late.rank, late.seconds, 0)
        if found.share < LEAST_SHARE:
            return
        name = late.rank.rank if late.rank.rank is not None else late.rank.path
        finding = self.loses(
            found,
            f"rank {name} arrives {ms(late.seconds)} a step after the others, who wait for it: {found.of_step()}; "
            f"most of it at {late.name} in the {late.phase} phase",
            f"before it arrives it {late.reason}; it was last at {percent(late.last_share)} of the collectives that "
            "were waited for",
            "find what this rank alone does before that collective: logging, checkpoints, its data, its device",
        )
        yield msgspec.structs.replace(finding, rank=late.rank.rank)
