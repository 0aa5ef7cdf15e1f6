"""AMP112: gradients are divided by the scale twice, once for a wrapper and once for the optimizer inside."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Rule, Sequence, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision.fixes.scaled_steps import one_object


class DoubleUnscale(Rule):
    """Gradients are divided by the scale twice, once for a wrapper and once for the optimizer inside."""

    code = "AMP112"
    name = "double-unscale"
    summary = "Gradients are divided by the scale twice, for two objects with the same parameters"
    severity = "error"

    fix_changes_results = True
    needs_at_work = "a scaler"

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """`unscale_` of what is stepped."""
        return one_object(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Gradients that were divided for two objects since the last update, and then stepped on."""
        for fault in runs.faults(rank, "divided-twice"):
            yield runs.seen(
                self, rank, fault, "the gradients are divided here and again for another object with the same "
                f"parameters: in {runs.of(fault.applied, fault.steps)} they were {runs.smaller(fault.factor)}",
                severity=runs.grade(fault), role="divided",
                cause="the scaler knows by the optimizer object what it has divided, not by the parameters",
                advice="hand the same object to `scaler.unscale_` and to `scaler.step`",
            )  # fmt: skip
