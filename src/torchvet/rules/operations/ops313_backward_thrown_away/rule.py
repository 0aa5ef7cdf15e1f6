"""OPS313: a backward pass computes gradients that are cleared before their optimizer steps on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import percent
from torchvet.recording.records.timing import ThrownAway
from torchvet.rules.kit import Edits, Finding, Iterator, RankRecording, Related, SourceFile
from torchvet.rules.operations.fixes.detaching import detached_for
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_STEPS = 3
"""Sampled steps from which on it is a habit."""


class BackwardThrownAway(LineCostRule):
    """A backward pass computes gradients that are thrown away."""

    severity = "warning"
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """What the part makes, detached for this loss."""
        return detached_for(file, finding)

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines whose passes always run through a part whose optimizer does not step on them."""
        for seen in rank.latest(ThrownAway, "id"):
            # A part that is used now and then is needed.
            if seen.steps < _STEPS or seen.thrown < seen.judged:
                continue
            line = seen.place.path, seen.place.line
            parts = [part for part in timing.times.lines if (part.place.path, part.place.line) == line]
            cost = Cost(timing, parts, saved=seen.share)
            if cost.counts:
                yield self._thrown(rank, seen, cost)

    def _thrown(self, rank: RankRecording, seen: ThrownAway, cost: Cost) -> Finding:
        what = f"the backward pass of line {seen.place.line} computes gradients of what is made here"
        if seen.made is None:
            what = "this backward pass computes gradients"
        elif seen.made == seen.place:
            what = "the backward pass of this line computes gradients of what is made here"
        made = f" ({seen.optimizer} of line {seen.optimizer_place.line})" if seen.optimizer_place is not None else ""
        return self.takes(
            rank,
            seen.made or seen.place,
            f"{what}, which are cleared before their optimizer steps: {cost.of_step()}",
            cost,
            cause=f"{percent(seen.share)} of that pass leads to the parameters of one optimizer alone{made}, whose "
            f"gradients were cleared unused after each of {seen.thrown} passes in {seen.steps} sampled steps",
            advice="give this loss `.detach()` of what these parameters make; where no other loss of the step needs "
            "it with gradients, make it within `torch.no_grad()`, which keeps nothing for backward either",
            related=[*self._beside(seen)],
        )

    def _beside(self, seen: ThrownAway) -> Iterator[Related]:
        """The backward call, and the optimizer whose gradients are cleared."""
        if seen.made is not None:
            yield self.beside("backward", "computes the gradients", seen.place)
        if seen.optimizer_place is not None:
            yield self.beside("optimizer", f"this {seen.optimizer} does not step on them", seen.optimizer_place)
