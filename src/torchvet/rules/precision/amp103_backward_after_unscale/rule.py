"""AMP103: a scaled backward adds to gradients that have been unscaled."""

from __future__ import annotations

from torchvet.rules.kit import Effect, Finding, Recording, records
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, of, smaller
from torchvet.rules.precision._scaling import ScaledPass, ScalerOrderRule
from torchvet.rules.precision.fixes.scaled_values import divided_after


class BackwardAfterUnscale(ScalerOrderRule, ScalerRule):
    """A scaled backward adds to gradients that have been unscaled already."""

    severity = "error"
    words = ("unscale_",)
    judged = ("unscale",)
    kinds = ("added-after-unscale",)
    fix_changes_results = True

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Scaled gradients that were added to divided ones, and then stepped on."""
        return Report(
            "this backward adds to gradients that have been unscaled: in "
            f"{of(fault.applied, fault.steps)} its part was {smaller(fault.factor)}",
            cause="unscale_ had divided the gradients before, and the scaler divides once in a step",
            advice="run every backward of the step first, then `scaler.unscale_(optimizer)`, then clip",
            role="unscaled",
        )

    def wrong_by(self, one: ScaledPass, unscale: Effect) -> Effect | None:
        """`unscale_`, a scaled backward and `scaler.step` of the only optimizer, in this order, with no update."""
        # With several optimizers the later backward may be another's, whose gradients nothing has divided.
        if one.optimizers != {unscale.subject}:
            return None
        for backward in one.scaled:
            after = one.after(backward, "scaler_step")
            if backward.order < unscale.order or not after or not one.sure(unscale, backward):
                continue
            if not one.between(unscale, backward, "update", "scaler_step", "step"):
                return backward if after[0].through == unscale.through else None
        return None

    def report(self, one: ScaledPass, unscale: Effect, late: Effect) -> Finding:
        """At the backward."""
        call = f"{unscale.through}.unscale_({unscale.subject})"
        return self.suspect_at(
            late,
            f"this backward adds scaled gradients to those that {call} has divided",
            cause=f"{unscale.through}.step({unscale.subject}) divides no second time, so {late.subject or 'this loss'} "
            "counts as many times as the scale says",
            advice=f"run this backward before `{call}`",
            edits=divided_after(one, unscale, late),
            related={"unscaled": unscale},
        )
