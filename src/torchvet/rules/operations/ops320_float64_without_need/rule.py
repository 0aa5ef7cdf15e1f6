"""OPS320: a model computes in float64, and what that takes in float32 was timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import ms, percent
from torchvet.recording.records.precision import WideNumbers
from torchvet.rules.kit import Finding, Findings, Iterator, Location, RankRecording, Recording
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_SOURCES = 2
"""Lines that make tensors of NumPy's arrays which are named at most."""


class Float64WithoutNeed(LineCostRule):
    """The whole model computes in float64, which takes a part of the step."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """With the lines that make tensors of arrays, where batches come with float64 numbers."""
        batches = any(one.batches for one in rank.all(WideNumbers))
        for finding in super().in_rank(rank, recording):
            for place in _from_arrays(recording) if batches else ():
                if place != finding.location:
                    finding.related.append(self.beside("from", "NumPy's float64 becomes a tensor here", place))
            yield finding

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Steps that would take less time in float32."""
        for seen in rank.all(WideNumbers):
            if seen.whole and seen.wide > seen.narrow > 0:
                # Of the time of the sampled steps, in which the operators were timed.
                cost = Cost(timing, timing.times.lines, saved=(seen.wide - seen.narrow) / seen.whole)
                if cost.counts:
                    yield self._wide(rank, seen, cost)

    def _wide(self, rank: RankRecording, seen: WideNumbers, cost: Cost) -> Finding:
        at = seen.cast or seen.place
        related = [self.beside("most-of-it", "most of it is here", seen.place)] if seen.place != at else []
        why = _why_chosen(seen)
        return self.takes(
            rank,
            at,
            f"the model computes in float64, and its operators take {seen.wide / seen.narrow:.1f} times what they take "
            f"in float32: {cost.of_step()} is saved there",
            cost,
            cause=f"operators on float64 ({', '.join(seen.operators)}) are {percent(seen.seconds / seen.every)} of the "
            f"time of all operators; of each of the sampled steps {ms(seen.wide / seen.sampled)} of them became "
            f"{ms(seen.narrow / seen.sampled)} on made float32 tensors of the same shapes, measured after the run"
            + (f"; {why}, so that float64 may be wanted" if why else ""),
            advice="if these digits are not needed, give the model float32 from the data on "
            "(`torch.from_numpy(array).float()`, or arrays of np.float32) and leave out the cast; sums of a metric may "
            "stay float64. Results then differ in late digits",
            severity="info" if why else cost.severity(),
            related=related,
        )


def _why_chosen(seen: WideNumbers) -> str:
    """What speaks for it that these digits are wanted."""
    if seen.by_default:
        return "torch's default type is float64"
    if seen.solver:
        return f"`{seen.solver}` loses digits by the condition of its matrix"
    if seen.derived:
        return "gradients are differentiated again"
    return "" if seen.loaded else "no loader feeds the model"


def _from_arrays(recording: Recording) -> list[Location]:
    files = [recording.model(path) for path in recording.sources]
    found = [
        Location(path=file.path, line=event.line, function=event.unit.name)
        for file in files
        if file is not None
        for event in file.calls("from_numpy")
    ]
    lines = {(one.path, one.line): one for one in found}
    return list(lines.values()) if len(lines) <= _SOURCES else []
