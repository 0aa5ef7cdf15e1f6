"""TRN114: an averaged model evaluates with the statistics that its batch norm was made with."""

from __future__ import annotations

from torchvet.rules.kit import Edits, Finding, Findings, Measured, RankRecording, Recording, Rule, SourceFile, records
from torchvet.rules.training.fixes.copied_buffers import copied_buffers

_LOOKS = 4
"""Looks between which the weights changed and the statistics did not."""


class AverageWithoutBuffers(Rule):
    """A model that follows another's weights evaluates with batch norm's first statistics."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # a model is followed only while it lives, and where it is called by itself

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The buffers copied after the loop that carries the parameters over."""
        return copied_buffers(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Models whose weights go on changing without an optimizer, and whose statistics never have."""
        for record in rank.latest(records.training.FirstStatistics, "model", "written", "used"):
            still = record.untouched == record.changes >= _LOOKS
            if still and record.passes >= records.training.ENOUGH_PASSES:
                yield self._finding(rank, record)

    def _finding(self, rank: RankRecording, record: records.training.FirstStatistics) -> Finding:
        layers = "1 batch norm layer" if record.layers == 1 else f"{record.layers} batch norm layers"
        message = (
            f"{record.model} evaluates with the statistics that its {layers} had at first (mean 0, variance 1), while "
            "the program goes on changing its weights"
        )
        used = [self.beside("evaluates", record.model, record.used)] if record.used and record.written else []
        return self.observed(
            rank,
            record.written or record.used,
            message,
            cause=f"only parameters are carried over, and statistics are buffers: at all {record.untouched} looks "
            "between which the weights had changed they were as they were made",
            advice="carry the buffers over as well: copy `running_mean`, `running_var` and `num_batches_tracked`",
            measured=Measured(),
            related=used,
        )
