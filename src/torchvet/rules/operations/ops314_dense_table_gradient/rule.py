"""OPS314: the gradient of a large table has all of its rows, of which a step looks up a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import ms, percent, size
from torchvet.recording.records.timing import DenseTable
from torchvet.rules.kit import Finding, Iterator, Location, RankRecording, Recording
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.rules.kit import Findings

_FEW = 0.1
"""The share of a table's rows that a call looks up at most."""
_SPARSE = {"Adam": "SparseAdam", "AdamW": "SparseAdam"}


class DenseTableGradient(LineCostRule):
    """The gradient of a large table has all of its rows, of which a step looks up a few."""

    severity = "warning"
    silence_clears = False

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """With the line that makes the table, where the text has just one."""
        for finding in super().in_rank(rank, recording):
            made = _made_at(recording)
            if made is not None and made != finding.location:
                finding.related.append(self.beside("made", "the table is made here", made))
            yield finding

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Tables whose gradient costs time to make and to step on."""
        parts = [part for part in timing.times.lines if part.phase != "data"]
        model = timing.per_step(sum(part.seconds for part in parts))
        for seen in rank.latest(DenseTable, "rows", "columns"):
            if not model or not seen.sampled or seen.touched > _FEW * seen.rows:
                continue
            made = seen.seconds / seen.sampled
            update = seen.part * timing.per_step(_update(timing, seen))
            cost = Cost(timing, parts, saved=min(1.0, (made + update) / model))
            if cost.counts:
                yield self._dense(rank, seen, cost, made, update)

    def _dense(self, rank: RankRecording, seen: DenseTable, cost: Cost, made: float, update: float) -> Finding:
        filled = size(4 * seen.rows * seen.columns * seen.calls / seen.sampled)
        advice = "make the table with `sparse=True`: the gradient then has the rows that were looked up alone"
        if not seen.exact:
            other = _SPARSE.get(seen.optimizer)
            advice += (
                f"; {seen.optimizer}, as it is set here, also changes rows without a gradient"
                + (f", and takes no sparse one: torch.optim.{other} for the table" if other else "")
                + ". This changes what is learned"
            )
        return self.observed(
            rank,
            seen.place,
            f"the gradient of a table of {seen.rows:,} rows has all of them, and a step looks up {seen.touched:,} at "
            f"most: making it and stepping on it takes {cost.of_step()}",
            cause=f"in each step backward fills {filled} in {ms(made)}, {percent(1 - seen.touched / seen.rows)} of it "
            f"with zeros, and {seen.optimizer} goes through all of it in {ms(update)}; {cost.without()}",
            advice=advice,
            severity=cost.severity() if seen.exact else "info",
            measured=cost.measured(),
        )


def _update(timing: Timing, seen: DenseTable) -> float:
    """Seconds of the optimizer's line."""
    at = seen.step_place
    parts = timing.below(at.path, at.line, at.line) if at is not None else []
    return sum(part.seconds for part in parts if part.phase == "optimizer")


def _made_at(recording: Recording) -> Location | None:
    """The only line that makes a table without `sparse=True`."""
    files = (recording.model(path) for path in recording.sources)
    found = [
        Location(path=file.path, line=event.line, function=event.unit.name)
        for file in files
        if file is not None
        for event in file.calls("Embedding", "EmbeddingBag")
    ]
    return found[0] if len(found) == 1 else None
