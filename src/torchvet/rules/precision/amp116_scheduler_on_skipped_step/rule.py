"""AMP116: the learning rate schedule goes on where the scaler leaves the step out."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Effect, Finding, Iterator, SourceFile, records
from torchvet.rules.precision._scaler_runs import Report, ScalerRule
from torchvet.rules.precision._scaling import ScaledPass, ScalerOrderRule
from torchvet.rules.precision.fixes.scaled_steps import only_after_a_step
from torchvet.rules.shared.order_rule import accumulates, around

_LOGGED = (ast.Call, ast.FormattedValue, ast.Dict, ast.keyword)
"""Where a scale stands that is only logged: it decides nothing."""


class SchedulerOnSkippedStep(ScalerOrderRule, ScalerRule):
    """The scheduler steps at every pass, also where the scaler has left the optimizer's step out."""

    severity = "info"
    words = ("sched",)
    fix_changes_results = True

    def of_use(self, use: records.scaling.ScalingUse) -> Report | None:
        """Steps of a schedule that followed nothing but skipped steps, graded by their share of it."""
        spent, whole = use.schedule_spent, use.schedule_steps
        if not spent:
            return None
        # A few skips at the beginning are how a scaler finds its scale: they cost a schedule next to nothing.
        return Report(
            f"{spent:,} of {whole:,} steps of the learning rate schedule went by while the optimizer's step was left "
            "out",
            cause="scaler.step leaves a step out whose gradients are not finite, and the scheduler does not know",
            advice="call `scheduler.step()` only if `scaler.get_scale()` has not fallen since before the step",
            severity="warning" if spent >= 5 and spent >= 0.1 * whole else "info",
            place=use.schedule_place,
        )

    def passes(self, file: SourceFile) -> list[ScaledPass]:
        """The passes of files that do not decide anything by the scale."""
        compares = any(not isinstance(event.parent, _LOGGED) for event in file.calls("get_scale"))
        # `get_scale()` compared before and after a step is how a program learns that it was skipped.
        return [] if compares or file.mentions("skip_lr", "skipped") else super().passes(file)

    def in_pass(self, one: ScaledPass) -> Iterator[Finding]:
        """A scheduler that steps wherever the scaler does, in the same loop, and does not ask for the scale."""
        for step in one.steps:
            for scheduler in one.of("scheduler"):
                if _follows(one, step, scheduler):
                    yield self._finding(one, step, scheduler)

    def _finding(self, one: ScaledPass, step: Effect, scheduler: Effect) -> Finding:
        return self.suspect_at(
            scheduler,
            f"{scheduler.subject}.step() goes on where {step.through} leaves a step out",
            cause=f"{step.through}.step({step.subject}) steps only if all gradients are finite, which early ones often "
            "are not",
            advice=f"call `{scheduler.subject}.step()` only if `{step.through}.get_scale()` has not fallen since "
            "before the step",
            edits=only_after_a_step(one, step),
            related={"stepped": step},
        )


def _follows(one: ScaledPass, step: Effect, scheduler: Effect) -> bool:
    if scheduler.order < step.order or not one.sure(step, scheduler):
        return False
    known = {branch for branch, _ in around(step)}
    return not any(accumulates(b, scheduler) for b, _ in around(scheduler) if b not in known)
