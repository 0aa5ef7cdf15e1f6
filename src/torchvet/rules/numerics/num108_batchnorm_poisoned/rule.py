"""NUM108: running statistics, optimizer state or averaged weights are not finite although the weights are."""

from __future__ import annotations

from collections.abc import Iterator

from torchvet.recording.records.numeric import Poisoned
from torchvet.recording.records.training import OptimizerUse
from torchvet.rules.kit import Finding, Holder, Measured, Place, RankRecording, Recording, Related, Rule, Severity

_WHAT = {
    "statistics": "running statistics",
    "buffer": "buffers",
    "optimizer state": "tensors of the optimizer's state",
    "copy": "averaged copies of the weights",
}
_HARM = {
    "statistics": "in evaluation the model gives NaN",
    "buffer": "what the model computes from them is NaN",
    "optimizer state": "their parameters get no update, or NaN",
    "copy": "the averaged model gives NaN, and every further average is NaN",
}


class BatchnormPoisoned(Rule):
    """Running statistics, optimizer state or averaged weights are not finite although the weights are."""

    code = "NUM108"
    name = "batchnorm-poisoned"
    summary = "Running statistics or averaged weights are not finite although the weights are"
    severity = "error"

    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Tensors that last, and that were finite before."""
        for record in rank.latest(Poisoned, "what", "owner"):
            yield self._finding(rank, record)

    def _finding(self, rank: RankRecording, record: Poisoned) -> Finding:
        known = list(dict.fromkeys(record.names))
        names = ", ".join(known[:3])
        more = f" and {record.count - 3} more" if record.count > 3 and len(known) > 1 else ""
        owner = f" of {record.owner}" if record.owner else ""
        severity: Severity = "info" if record.recovered is not None else "error"
        after = f"; finite again since step {record.recovered}" if record.recovered is not None else ""
        harm = _HARM[record.what] if record.recovered is None else "until then " + _HARM[record.what]
        step = f"step {record.tick}" if record.skipped is None else f"step {record.skipped}, which the scaler skipped"
        message = (
            f"{record.count} of {record.of} {_WHAT[record.what]}{owner} are not finite since {step}"
            f"{self._range(record)}, although all weights are: {names}{more}{after}; {harm}"
        )
        cause = self._cause(record)
        advice = self._advice(record)
        return self.observed(
            rank,
            severity=severity,
            place=self._place(rank, record),
            message=message,
            cause=cause,
            advice=advice,
            holder=Holder(name=record.names[0], kind="attribute", path=record.names[:3]),
            related=self._related(record),
            measured=Measured(steps=record.tick),
        )

    @staticmethod
    def _range(record: Poisoned) -> str:
        """Where it was not looked at in every step: between which steps it happened."""
        return "" if record.tick - record.clean <= 1 else f" (they were finite after step {record.clean})"

    @staticmethod
    def _place(rank: RankRecording, record: Poisoned) -> Place | None:
        """The forward call that wrote them, else the step."""
        steps = [use.step_place for use in rank.all(OptimizerUse) if use.step_place is not None]
        return record.call or record.place or record.step_place or (steps[-1] if steps else None)

    @staticmethod
    def _related(record: Poisoned) -> list[Related]:
        found = []
        if record.step_place is not None:
            where = record.step_place
            found.append(Related(role="skipped", message="the skipped step", path=where.path, line=where.line))
        if record.place is not None and record.place != record.call:
            where = record.place
            found.append(Related(role="written", message="what writes them", path=where.path, line=where.line))
        return found

    @staticmethod
    def _cause(record: Poisoned) -> str:
        values = " and ".join(f"{n:,} {w}" for n, w in ((record.nans, "NaN"), (record.infinities, "infinities")) if n)
        if record.what == "statistics":
            return f"the forward pass writes them before the step is judged, and they keep what they took in: {values}"
        return f"they are updated from values that were not finite, and keep them: {values}"

    @staticmethod
    def _advice(record: Poisoned) -> str:
        if record.what in ("statistics", "buffer"):
            return (
                "leave bad batches out before the forward pass, or put the buffers back when a step was skipped; "
                "`reset_running_stats()` and a few passes in train mode mend the model"
            )
        if record.what == "copy":
            return "update the average only from finite weights, and copy the weights into it anew"
        return "clip or skip gradients that are not finite before the optimizer sees them; make its state anew"
