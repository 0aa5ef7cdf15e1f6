"""OPS310: batches are padded further than their longest text, and the model computes the padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import percent
from torchvet.recording.records.timing import PaddedColumns
from torchvet.rules.kit import Finding, Iterator, RankRecording
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_PADDED, _MOSTLY = 0.25, 0.5
"""The share of columns from which on it is said, and from which on it may be a warning."""
_MODEL = 0.5
"""The share of a step that the model takes, from which on it may be a warning."""
_CALLS = 3


class PaddingComputed(LineCostRule):
    """Batches are padded further than their longest text."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """The line that looks up the most columns of padding, by the time of the forward and backward passes."""
        seen = max(rank.latest(PaddedColumns, "place"), key=lambda record: record.padded, default=None)
        if seen is None or seen.calls < _CALLS or seen.padded < _PADDED * seen.columns:
            return
        parts = [part for part in timing.times.lines if part.phase in ("forward", "backward") and not part.quiet]
        share = seen.padded / seen.columns
        cost = Cost(timing, parts, saved=share)
        if cost.counts:
            yield self._padded(rank, seen, share, cost)

    def _padded(self, rank: RankRecording, seen: PaddedColumns, share: float, cost: Cost) -> Finding:
        model = cost.share / share
        made = seen.made if seen.made != seen.place else None
        rare = share < _MOSTLY or model < _MODEL or seen.least < _PADDED
        return self.observed(
            rank,
            seen.place,
            f"{percent(share)} of the columns of a batch are padding in each row: their share of forward and backward, "
            f"which take {percent(model)} of a step, is {cost.of_step()}",
            cause=f"batches are {seen.width} columns wide, and no text that was seen is longer than {seen.widest}; "
            "what does not depend on the width gains nothing, attention gains more",
            advice="pad each batch to its own longest text, in the loader's collate function; texts of similar length "
            "in one batch leave even less padding",
            severity="info" if rare else cost.severity(),
            measured=cost.measured(),
            related=[self.beside("made", "a batch is made here", made)] if made is not None else [],
        )
