"""OPS309: the last layer computes logits for rows that the loss ignores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import percent
from torchvet.recording.records.timing import IgnoredRows
from torchvet.rules.kit import Edits, Finding, Iterator, Place, RankRecording, SourceFile
from torchvet.rules.operations.fixes.counted_rows import selected_first
from torchvet.rules.shared.line_costs import SHARE, Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime, OperatorsAt

_IGNORED, _LEAST, _CALLS = 0.5, 0.25, 3
"""The share of all rows, of each batch's, and the batches from which on it is no accident."""
_PART = 0.5
"""Of a line's products: a line with more beside the last layer is the whole model's."""
_OPERATORS = 24
"""In a step: the same."""

Operators = dict[tuple[str, int], "OperatorsAt"]


class IgnoredRowsComputed(LineCostRule):
    """The last layer computes logits for rows that the loss ignores."""

    severity = "warning"
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The rows that count selected before the last layer."""
        return selected_first(file, finding)

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines whose loss ignored half of the rows or more in the sampled steps, by their time in the forward pass."""
        from torchvet.analysis.line_times import operators_of

        sampled, operators = operators_of(rank)
        for seen in rank.latest(IgnoredRows, "place", "loss"):
            share = seen.ignored / seen.rows
            accident = share < _IGNORED or seen.least < _LEAST or seen.calls < _CALLS
            if accident or seen.part < _PART or not _few(seen.place, operators, sampled):
                continue
            own = {(place.path, place.line): place for place in (seen.place, seen.loss)}.values()
            parts = [p for place in own if _few(place, operators, sampled) for p in _forward(timing, place)]
            cost = Cost(timing, parts, saved=share * seen.part)
            if cost.counts:
                yield self._ignored(rank, seen, share, cost)

    def _ignored(self, rank: RankRecording, seen: IgnoredRows, share: float, cost: Cost) -> Finding:
        related = []
        if (seen.loss.path, seen.loss.line) != (seen.place.path, seen.place.line):
            related.append(self.beside("loss", "the loss that ignores them", seen.loss))
        return self.observed(
            rank,
            seen.place,
            f"logits of {seen.columns:,} columns are computed for rows of which the loss ignores {percent(share)}: "
            f"in the forward pass they take {cost.of_step()}",
            cause="this is their share of the time of these lines. The backward pass goes through the same rows, which "
            "is not in this figure: the gain may be several times as large",
            advice="select the rows that count before the last layer: `keep = targets != ignore_index`, then "
            "`loss(head(hidden[keep]), targets[keep])`",
            # Products take twice as long in the backward pass: of the gain this is half at the most.
            severity=cost.severity(share=SHARE / 2),
            measured=cost.measured(),
            related=related,
        )


def _few(place: Place, operators: Operators, sampled: int) -> bool:
    """Whether a line runs few operators beside the last layer's: else it is the whole model's."""
    seen = operators.get((place.path, place.line))
    return seen is not None and seen.count <= _OPERATORS * sampled


def _forward(timing: Timing, place: Place) -> list[LineTime]:
    """What was seen of a statement while it learns."""
    statement = timing.files.statement(place, {})
    parts = timing.innermost(statement.path, statement.line, statement.end)
    return [part for part in parts if part.phase != "backward" and not part.quiet]
