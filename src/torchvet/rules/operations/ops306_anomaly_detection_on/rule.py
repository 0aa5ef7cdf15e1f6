"""OPS306: training runs with autograd's anomaly detection on."""

from __future__ import annotations

from torchvet.recording.records.training import AnomalyMode
from torchvet.rules.kit import Findings, Measured, RankRecording, Recording, Rule

_PASSES = 4
"""Passes that all have it on. Fewer may be a look at one bad batch."""


class AnomalyDetectionOn(Rule):
    """Anomaly detection is on in ordinary training steps."""

    severity = "warning"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Sampled steps that all run backward with it."""
        record = rank.last(AnomalyMode)
        if record is None or record.on < _PASSES or record.on < record.passes:
            return
        checks = ", and looks for NaN in what each backward operation makes" if record.check_nan else ""
        yield self.observed(
            rank,
            record.place,
            f"autograd's anomaly detection was on in all {record.passes} backward passes that were looked at",
            cause=f"it keeps a stack trace for each operation of the forward pass{checks}",
            advice="turn it on for the run that looks for a NaN, and off for training: torchvet names the first "
            "operation that makes one without it. `torchvet run --try-fixes` measures what it costs here",
            measured=Measured(),
        )
