"""NUM108: running statistics, optimizer state or averaged weights are not finite although the weights are."""

from __future__ import annotations

from collections.abc import Iterator

from torchvet.rules.kit import Finding, Holder, Measured, Place, RankRecording, Recording, Related, Rule, records

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
_PUT_BACK = (
    "leave bad batches out before the forward pass, or put the buffers back when a step was skipped; "
    "`reset_running_stats()` and a few passes in train mode repair the model"
)
_ADVICE = {
    "statistics": _PUT_BACK,
    "buffer": _PUT_BACK,
    "optimizer state": "clip or skip gradients that are not finite before the optimizer sees them; make its state anew",
    "copy": "update the average only from finite weights, and copy the weights into it anew",
}


class BatchnormPoisoned(Rule):
    """Running statistics or averaged weights are not finite although the weights are."""

    severity = "error"
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Tensors that last, and that were finite before."""
        for record in rank.latest(records.numeric.Poisoned, "what", "owner"):
            yield self._finding(rank, record)

    def _finding(self, rank: RankRecording, record: records.numeric.Poisoned) -> Finding:
        # A running average that has taken in a NaN keeps it: weights are finite, and evaluation gives NaN.
        lasts = record.recovered is None
        return self.observed(
            rank,
            severity="error" if lasts else "info",
            message=_message(record),
            place=_place(rank, record),
            cause=_cause(record),
            advice=_ADVICE[record.what],
            measured=Measured(steps=record.tick),
            holder=Holder(name=record.names[0], kind="attribute", path=record.names[:3]),
            related=list(_related(record)),
        )


def _message(record: records.numeric.Poisoned) -> str:
    known = list(dict.fromkeys(record.names))
    more = f" and {record.count - 3} more" if record.count > 3 and len(known) > 1 else ""
    names = ", ".join(known[:3]) + more
    owner = f" of {record.owner}" if record.owner else ""
    step = f"step {record.tick}" if record.skipped is None else f"step {record.skipped}, which the scaler skipped"
    # Where it was not looked at in every step: between which steps it happened.
    between = f" (they were finite after step {record.clean})" if record.tick - record.clean > 1 else ""
    after, harm = "", _HARM[record.what]
    if record.recovered is not None:
        after, harm = f"; finite again since step {record.recovered}", f"until then {harm}"
    since = f"{record.count} of {record.of} {_WHAT[record.what]}{owner} are not finite since {step}{between}"
    return f"{since}, although all weights are: {names}{after}; {harm}"


def _place(rank: RankRecording, record: records.numeric.Poisoned) -> Place | None:
    """The forward call that wrote them, else the step."""
    steps = [use.step_place for use in rank.all(records.optimizers.OptimizerUse) if use.step_place is not None]
    return record.call or record.place or record.step_place or (steps[-1] if steps else None)


def _related(record: records.numeric.Poisoned) -> Iterator[Related]:
    written = record.place if record.place != record.call else None
    for role, message, place in (
        ("skipped", "the skipped step", record.step_place),
        ("written", "what writes them", written),
    ):
        if place is not None:
            yield Related(role=role, message=message, path=place.path, line=place.line)


def _cause(record: records.numeric.Poisoned) -> str:
    values = " and ".join(f"{n:,} {w}" for n, w in ((record.nans, "NaN"), (record.infinities, "infinities")) if n)
    if record.what == "statistics":
        return f"the forward pass writes them before the step is judged, and they keep what they took in: {values}"
    return f"they are updated from values that were not finite, and keep them: {values}"
