"""AMP112: gradients are divided by the scale twice, once for a wrapper and once for the optimizer inside."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Finding, Recording, Sequence, SourceFile, records
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, of, smaller
from torchvet.rules.precision.fixes.scaled_steps import one_object


class DoubleUnscale(ScalerRule):
    """Gradients are divided by the scale twice, for two objects with the same parameters."""

    severity = "error"
    kinds = ("divided-twice",)
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """`unscale_` of what is stepped."""
        return one_object(file, finding)

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Gradients that were divided for two objects since the last update, and then stepped on."""
        return Report(
            "the gradients are divided here and again for another object with the same parameters: in "
            f"{of(fault.applied, fault.steps)} they were {smaller(fault.factor)}",
            cause="the scaler knows by the optimizer object what it has divided, not by the parameters",
            advice="hand the same object to `scaler.unscale_` and to `scaler.step`",
            role="divided",
        )
