"""AMP109: the scale is updated between the steps of two optimizers that share a backward."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Effect, Finding, Recording, Sequence, SourceFile, calls_at, records
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, of, smaller
from torchvet.rules.precision._scaling import ScaledPass, ScalerOrderRule
from torchvet.rules.precision.fixes.moves import taken_out
from torchvet.source.model import Event, edits, target_names


class UpdateBetweenOptimizers(ScalerOrderRule, ScalerRule):
    """`scaler.update()` runs between the steps of two optimizers whose gradients exist already."""

    severity = "warning"
    words = ("caler",)
    judged = ("update",)
    kinds = ("update-between",)
    fix_changes_results = True

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Optimizers stepped after an update that came between their backward and them."""
        # A change of the scale alone is a factor of 2 or 1/2; what is far smaller was divided twice.
        twice = fault.factor is not None and fault.factor < 0.1
        # The scale changes seldom, with a skip or every 2000 clean steps: in most runs the order harms few steps.
        often = fault.changed > 0.02 * fault.count
        effect = f": in {of(fault.changed, fault.count)} its gradients were {smaller(fault.factor)}"
        none = f"; the scale has not changed there in {fault.count:,} steps"
        return Report(
            "this update comes between the backward and the step of another optimizer"
            + (effect if fault.changed else none),
            severity="error" if twice else "warning" if often else "info",
            cause="update() may change the scale, and forgets which optimizers have been unscaled",
            advice="call `scaler.update()` once, after the steps of all optimizers",
        )

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """An update that ends a loop over the optimizers comes after the loop."""
        made = (_after_the_loop(file, update) for update, _ in calls_at(file, finding, "update"))
        return next(filter(None, made), ())

    def wrong_by(self, one: ScaledPass, update: Effect) -> Effect | None:
        """An update after one step and before another, with no scaled backward between it and the other."""
        return _step_after(one, update) or _same_in_loop(one, update)

    def report(self, one: ScaledPass, update: Effect, later: Effect) -> Finding:
        """At the update."""
        again = any(u.subject == later.subject and u.order < update.order for u in one.of("unscale"))
        twice = again and later.order > update.order
        spare = any(u.order > later.order and one.sure(u, later) for u in one.of("update") if u is not update)
        looped = _after_the_loop(one.file, update.event) if later.order < update.order else []
        text = "its gradients are divided twice" if twice else "with the new scale"
        return self.suspect_at(
            update,
            f"{update.through}.update() runs before {later.subject} is stepped, {text}",
            severity="error" if twice else "warning",
            cause=f"the gradients of {later.subject} were multiplied by the scale that held before this update",
            advice=f"call `{update.through}.update()` once, after the last `{update.through}.step`",
            edits=taken_out(one.file, update.event) if spare else looped,
            related={"stepped": later},
        )


def _step_after(one: ScaledPass, update: Effect) -> Effect | None:
    """The step after an update that uses gradients from before it, while another step comes before the update."""
    steps = [s for s in one.with_(update, "scaler_step") if s.through == update.through and s.subject]
    before = [s for s in steps if s.order < update.order]
    return next((s for s in steps if s.order >= update.order and _splits(one, update, before, s)), None)


def _splits(one: ScaledPass, update: Effect, before: list[Effect], later: Effect) -> bool:
    """Whether an update stands between the steps of two optimizers that use gradients from before it."""
    if not one.sure(update, later) or one.between(update, later, "backward"):
        return False
    backward = any(b.order < update.order and one.sure(b, later) for b in one.backwards)
    return backward and any(s.subject != later.subject and one.sure(s, later) for s in before)


def _same_in_loop(one: ScaledPass, update: Effect) -> Effect | None:
    """`for opt in optimizers: scaler.step(opt); scaler.update()` after the backward."""
    loop = update.event.loop
    if loop is None or not isinstance(loop.node, ast.For):
        return None
    if _leaves_out(loop.node) or not one.scaled:
        return None
    if any(b.at.inside(loop) or b.event.loop is loop for b in one.backwards):
        return None
    targets = target_names(loop.node)
    mine = (s for s in one.steps if s.event.loop is loop and s.order < update.order)
    return next((s for s in mine if s.subject in targets), None)


def _leaves_out(loop: ast.For) -> bool:
    """Whether a loop steps one of several optimizers: `if number != chosen: continue`."""
    tests = (s for s in loop.body if isinstance(s, ast.If))
    return any(isinstance(s, ast.Continue) for test in tests for s in test.body)


def _after_the_loop(file: SourceFile, update: Event) -> list[Edit]:
    """An update that ends a loop with steps in it, one margin further out."""
    loop, statement = update.loop.node if update.loop is not None else None, update.statement
    steps = [e for e in update.unit.calls.get("step", ()) if e.loop is update.loop]
    if not isinstance(loop, ast.For) or loop.orelse or loop.body[-1] is not statement or not steps:
        return []
    if len(loop.body) < 2 or not edits.stands_alone(file, statement):
        return []
    line, column = edits.start_of(file, statement)
    return [Edit(path=file.path, start=(line, 1), end=(line, column), text=edits.margin(file, loop))]
