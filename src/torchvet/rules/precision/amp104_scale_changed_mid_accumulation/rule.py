"""AMP104: the scale is updated in the middle of an accumulation."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Effect, Finding, Recording, records
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, of, smaller
from torchvet.rules.precision._scaling import ScaledPass, ScalerOrderRule
from torchvet.rules.precision.fixes.moves import moved_after, together
from torchvet.rules.shared.order_rule import counts_alone
from torchvet.source.model import blocks, edits


class ScaleChangedMidAccumulation(ScalerOrderRule, ScalerRule):
    """`scaler.update()` runs at every micro-step, `scaler.step` only at the end of the accumulation."""

    severity = "error"
    words = ("caler",)
    judged = ("update",)
    kinds = ("scale-changed",)
    bad_raises = "No inf checks were recorded prior to update"
    refusals = (bad_raises,)
    fix_may_change_losses = True

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Updates within an accumulation: gradients of several scales were added up."""
        # As small as the scale is large: they were divided again after the update.
        again = bool(fault.factor and fault.scale and fault.factor * fault.scale <= 1.0)
        both = "`scaler.unscale_` and `scaler.update` once each, before and" if again else "`scaler.update()` once,"
        return Report(
            "the scale is updated between the backward passes of one accumulation: in "
            f"{of(fault.changed, fault.steps)} the earlier ones were {smaller(fault.factor)}",
            severity="error" if fault.changed > 0.02 * fault.count else "info",
            cause="update() may change the scale, and forgets what has been divided"
            + (": unscale_ divides it again" if again else ""),
            advice=f"call {both} after the `scaler.step` that ends the accumulation",
        )

    def of_refusal(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report | None:
        """An update that torch refused, where source knows the line for one within an accumulation."""
        at = self.suspected(recording, fault.place)
        if at is None:
            return None
        return Report(
            "update() is refused in the middle of an accumulation: nothing was stepped since the last",
            cause="update() settles what step() has found, and that waits for the end of the accumulation",
            advice="move `scaler.update()` right after `scaler.step(optimizer)`",
            place=at,
        )

    def wrong_by(self, one: ScaledPass, update: Effect) -> Effect | None:
        """An update in every pass with a scaled backward, where every step of the scaler waits for the last pass."""
        steps = [s for s in one.steps if s.through == update.through]
        every = [b for b in one.scaled if not one.waits(b, update) and not one.excludes(b, update)]
        if not steps or not every or any(counts_alone(update, b) for b in every):
            return None
        return steps[0] if all(one.waits(s, update) for s in steps) else None

    def report(self, one: ScaledPass, update: Effect, step: Effect) -> Finding:
        """At the update."""
        scaler = update.through
        # With an unscale_ in each micro-step update() has inf checks, so that nothing raises.
        early = [u for u in one.of("unscale") if not one.waits(u, update)]
        text = "gradients of different scales are added up" if early else "it raises where nothing was stepped"
        return self.suspect_at(
            update,
            f"{scaler}.update() runs at every micro-step, {scaler}.step only at the last: {text}",
            cause=f"{scaler}.update() belongs to {scaler}.step({step.subject}) at line {step.line}, which waits for "
            "the end of the accumulation",
            advice=f"move `{scaler}.update()` right after `{one.text(step)}`",
            edits=_moved_together(one, early, update, step) if early else _moved(one, update, step),
            related={"stepped": step},
        )


def _moved(one: ScaledPass, update: Effect, step: Effect) -> list[Edit]:
    alone = len(one.steps) == 1 and step.event.unit is update.event.unit and not update.event.call.args
    return moved_after(one.file, update.event, step.event.statement) if alone else []


def _moved_together(one: ScaledPass, early: list[Effect], update: Effect, step: Effect) -> list[Edit]:
    """The update after the step, and before it what unscales and clips, where that stands right before the branch that
    the step waits in."""
    file, unscaled = one.file, early[0].event.statement
    branch = step.event.context.arms[-1][0] if step.event.context.arms else None
    body = blocks.block_of(step.event.unit.node, unscaled)
    if not isinstance(branch, ast.If) or branch not in body or len(early) > 1:
        return []
    between = body[body.index(unscaled) : body.index(branch)]
    clips = {id(e.event.statement) for e in one.of("clip", "unscale")}
    lone = all(id(s) in clips and edits.stands_alone(file, s) and s.lineno == s.end_lineno for s in between)
    if not between or not lone or step.event.statement not in branch.body:
        return []
    taken = [edit for s in between for edit in blocks.without(file, [s])]
    joined = f"{file.newline}{edits.margin(file, step.event.statement)}".join(map(file.segment, between))
    put = edits.before(file, step.event.statement, joined)
    return together(put, taken, _moved(one, update, step))
