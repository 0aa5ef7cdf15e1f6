"""OPS306: training runs with autograd's anomaly detection on."""

from __future__ import annotations

import ast

from torchvet.recording.records.timing import AnomalyMode
from torchvet.rules.kit import Edits, Finding, Findings, Measured, RankRecording, Recording, Rule, SourceFile, events_at
from torchvet.rules.shared.training_loops import without_statement
from torchvet.source.model import is_call

_SWITCHES = ("set_detect_anomaly", "set_anomaly_enabled")
_PASSES = 4
"""Passes that all have it on. Fewer may be a look at one bad batch."""


class AnomalyDetectionOn(Rule):
    """Anomaly detection is on in ordinary training steps."""

    severity = "warning"

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The statement taken out that switches it on for good; `with detect_anomaly():` is left alone."""
        for event in events_at(file, finding):
            alone = isinstance(event.statement, ast.Expr) and event.statement.value is event.node
            if alone and is_call(event.node, *_SWITCHES):
                return without_statement(file, event.statement)
        return ()

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
