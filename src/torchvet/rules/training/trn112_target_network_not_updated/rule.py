"""TRN112: a model that is made like the trained one, and computes its targets, is never updated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Location, Measured, RankRecording, Recording, Rule, Severity, count

if TYPE_CHECKING:
    from torchvet.source.stores.copies import Copying

_LOOKS, _PASSES, _STEPS = 4, 2, 50
"""Looks that found the same weights, passes that were seen, and steps between the first look and the last."""
_TURNS = 3
"""Times that a condition should have held in these steps."""


class TargetNetworkNotUpdated(Rule):
    """A model that is made like the trained one, and computes its targets, is never updated."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # a condition that the text does not state may hold later

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Copies that never change, where source has what should change them: a reference that nothing updates is
        meant to stay."""
        for seen in rank.latest(records.training.UnchangedCopy, "id"):
            steps = seen.last - seen.first
            if seen.used is None or not _is_constant(seen):
                continue
            ran = {(place.path, place.line) for place in seen.loaded}
            copies = recording.index.copies_into_called(seen.used.path, seen.used.line, ran)
            certain = [c for c in copies if c.uncalled or (c.turns is not None and _TURNS * c.turns <= steps)]
            for copy in (certain or copies)[:1]:
                yield self._finding(rank, seen, copy, "warning" if certain else "info")

    def _finding(
        self, rank: RankRecording, seen: records.training.UnchangedCopy, copy: Copying, severity: Severity
    ) -> Finding:
        steps = seen.last - seen.first
        why = "no call leads to the function here, which copies weights into it"
        if not copy.uncalled:
            why = "the condition here, under which weights are copied into it, has not held"
        if copy.turns is not None and copy.turns <= steps:
            why += f"; with every {copy.turns:,} steps it would have {count(steps // copy.turns, 'time')}"
        return self.observed(
            rank,
            Location(path=copy.path, line=copy.line),
            f"{seen.model}, which runs beside the trained model without gradients, has the same weights in step "
            f"{seen.last:,} as in step {seen.first:,}",
            cause=why,
            advice="call it in each step, or with every so many"
            if copy.uncalled
            else "look at what the condition counts: a counter of optimizer steps goes up by one each time",
            severity=severity,
            measured=Measured(steps=steps),
            related=[self.beside("used", "it computes here", seen.used)] if seen.used is not None else [],
        )


def _is_constant(seen: records.training.UnchangedCopy) -> bool:
    """Whether a copy was used, and looked at, for long, and never changed."""
    return not seen.changes and seen.looks >= _LOOKS and seen.passes >= _PASSES and seen.last - seen.first >= _STEPS
