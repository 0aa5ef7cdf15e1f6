"""DST103: one rank makes all others wait at the collectives."""

from __future__ import annotations

import msgspec

from torchvet.rules.kit import Finding, Iterator, Rule, Trace
from torchvet.rules.shared import trace_costs


class Straggler(Rule):
    """One rank arrives late at the collectives, and all others wait for it."""

    code = "DST103"
    name = "straggler"
    summary = "One rank arrives late at the collectives, and all others wait for it"
    severity = "warning"

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """From traces of several ranks: who arrives last as a rule, and for how long the others wait."""
        from torchvet.rules.distributed._arrivals import late_rank

        late = late_rank(trace.ranks)
        if late is None or late.rank.steps is None:
            return
        found = trace_costs.Worst(late.rank, late.seconds, 0)
        share = trace_costs.share_of(late.rank, late.seconds)
        if share < trace_costs.LEAST_SHARE:
            return
        name = late.rank.rank if late.rank.rank is not None else late.rank.path
        finding = trace_costs.observed(
            self, found, trace,
            message=f"rank {name} arrives {trace_costs.ms(late.seconds)} a step after the others, who wait for it: "
            f"{trace_costs.of_step(late.rank, late.seconds)}; most of it at {late.name} in the {late.phase} phase",
            cause=f"before it arrives it {late.reason}; it was last at "
            f"{trace_costs.percent(late.last_share)} of the collectives that were waited for",
            advice="find what this rank alone does before that collective: logging, checkpoints, its data, its device",
        )  # fmt: skip
        yield msgspec.structs.replace(finding, rank=late.rank.rank)
