"""DEV105: a value that must be a probability is none."""

from __future__ import annotations

from torchvet.rules.device import _crashes
from torchvet.rules.kit import Finding, Findings, RankRecording, Recording, Rule, records


class ProbabilityOutOfRange(Rule):
    """A value that must be a probability is none."""

    severity = "error"
    bad_raises = "all elements of input should be between 0 and 1"
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """An error that ended the program for such a value."""
        for record in rank.all(records.device.BadValue):
            if record.kind == "probability":
                yield self._finding(rank, record)

    def _finding(self, rank: RankRecording, record: records.device.BadValue) -> Finding:
        name = record.name or record.derived or f"what {record.operation} was given"
        made = f", of which {record.derived} is made," if record.derived and record.name else ""
        cause = f"torch says: {record.message.rstrip(':')}"
        if record.asserted:
            cause = "a kernel of the GPU asserts here: on a real one the error comes later, in another line"
        message = (
            f"{name}{made} holds {_value(record)}{_crashes.positions(record)}: {record.operation} takes "
            f"{_wanted(record)}"
        )
        return self.observed(rank, record.place, message, cause=cause, advice=_advice(record))


def _value(record: records.device.BadValue) -> str:
    if record.nans and (record.derived or record.nans >= record.count or not record.values):
        return "NaN"
    if record.of.startswith("rows"):
        return "a row that sums to zero"
    return f"{record.values[0]:.6g}" if record.values else "a value that is no probability"


def _wanted(record: records.device.BadValue) -> str:
    if record.of and not record.of.startswith("rows"):
        return record.of
    return "0 to 1" if record.high is not None else "weights that are finite and not negative, not all of them zero"


def _advice(record: records.device.BadValue) -> str:
    if record.nans:
        return "find out where the NaN comes from: an earlier step made it (a loss or a gradient that is not finite)"
    if record.argument == "target":
        return "scale the targets to 0 and 1 where they are read"
    if "binary_cross_entropy" in record.operation:
        return "use `binary_cross_entropy_with_logits` (`nn.BCEWithLogitsLoss`): it takes scores as they are"
    return "give probabilities: the softmax or sigmoid of the scores, or the scores as `logits=`"
