"""OPS322: all is sorted, and only the first few of the order are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import count, ms
from torchvet.recording.records.timing import SortedForFew as Seen
from torchvet.rules.kit import Finding, Iterator, RankRecording
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_QUICKER = 0.7
"""What `topk` takes of the time, up to which it is worth a word. Chosen, not measured."""


class SortedForFew(LineCostRule):
    """All is sorted, and only the first few of the order are used."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines whose sorts take a part of the step, by what `topk` was measured to take."""
        for seen in rank.latest(Seen, "place"):
            if not seen.whole or seen.topk > _QUICKER * seen.whole:
                continue
            at = timing.files.statement(seen.place, {})
            parts = timing.innermost(at.path, at.line, at.end)
            saved = min(1.0, seen.seconds / seen.every) * (1 - seen.topk / seen.whole)
            cost = Cost(timing, parts, saved, alone=True)
            if cost.counts:
                yield self._sorts(rank, seen, cost)

    def _sorts(self, rank: RankRecording, seen: Seen, cost: Cost) -> Finding:
        which = "last" if seen.last else "first"
        often = f", in about one of {round(1 / cost.often):,} steps" if cost.often else ""
        largest = "" if seen.descending != seen.last else ", largest=False"
        return self.takes(
            rank,
            seen.place,
            f"{count(seen.rows, 'row')} of {seen.size:,} are sorted, and the {which} {seen.few} of each are used: "
            f"`topk` would save {cost.of_step()}{often}",
            cost,
            cause=f"in {count(seen.calls, 'call')} of {count(seen.sampled, 'sampled step')} nothing read more of the "
            f"order; measured after the run on such rows: {ms(seen.whole)} by sorting, {ms(seen.topk)} by `topk`",
            advice=f"`topk({seen.few}{largest})` gives the same values in the same order"
            f"{' (turned round: its first is the last)' if seen.last else ''}; of equal values it may pick others",
        )
