"""OPS319: several backward passes of a step go through the same part of the graph, to add to the same gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import count, percent
from torchvet.recording.records.passes import WalkedAgain
from torchvet.rules.kit import Edits, Finding, Iterator, RankRecording, SourceFile
from torchvet.rules.operations.fixes.summed_losses import summed_at
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_STEPS = 3
"""Sampled steps from which on it is a habit."""
KEPT = "kept"
"""The role of what is said where a later step goes through these nodes as well: no edit may free them then."""


class GraphWalkedAgain(LineCostRule):
    """Several backward passes of a step go through the same part of the graph."""

    severity = "warning"
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """One pass from the sum of the losses."""
        return () if any(r.role == KEPT for r in finding.related) else summed_at(file, finding)

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines whose passes always went through the same nodes, untouched gradients between them."""
        for seen in rank.latest(WalkedAgain, "id"):
            if seen.steps < _STEPS:
                continue
            lines = {(one.path, one.line) for one in seen.lines}
            parts = [part for part in timing.times.lines if (part.place.path, part.place.line) in lines]
            cost = Cost(timing, parts, saved=seen.share)
            if cost.counts:
                yield self._walked(rank, seen, cost)

    def _walked(self, rank: RankRecording, seen: WalkedAgain, cost: Cost) -> Finding:
        a_step = seen.passes / seen.steps
        passes = f"{a_step:.0f}" if round(a_step, 1) == round(a_step) else f"{a_step:.1f}"
        measure = "seconds" if seen.timed else "operators (a device's seconds are not known)"
        related = [self.beside("backward", "goes through them as well", p) for p in seen.lines if p != seen.place]
        if seen.kept:
            related.append(self.beside(KEPT, "a later step goes through these nodes as well", None))
        return self.takes(
            rank,
            seen.place,
            f"{passes} backward passes of a step go through the same {count(seen.nodes, 'node')} of the graph: one "
            f"pass from the sum of the losses would save {cost.of_step()}",
            cost,
            cause=f"{percent(seen.share)} of these passes' {measure} went again through nodes that one pass goes "
            f"through once; all passes added to the same gradients, which nothing read or changed between them in any "
            f"of {count(seen.steps, 'sampled step')}",
            advice="one `backward()` of the sum of the losses gives the same gradients, but for rounding; it needs no "
            "`retain_graph=True`, and keeps what the losses' own parts saved until then",
            severity=None if seen.timed else "info",
            related=related,
        )
