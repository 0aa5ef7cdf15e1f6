"""AMP106: an optimizer steps past the scaler, on gradients that are still multiplied by the loss scale."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Effect, Finding, Recording, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, smaller, times
from torchvet.rules.precision.fixes.moves import taken_out, together
from torchvet.rules.shared.order_rule import leaves
from torchvet.source.model import edits, receiver


class StepBypassesScaler(scaling.ScalerOrderRule, ScalerRule):
    """The loss is scaled, and `optimizer.step()` is called past the scaler."""

    severity = "error"
    words = ("caler",)
    judged = ("step",)
    kinds = ("applied-scaled", "applied-unchecked")
    fix_changes_results = True

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Optimizers that stepped on scaled gradients, or on divided ones that nobody had looked through."""
        advice = "call `scaler.step(optimizer)` in its place"
        if fault.through:
            advice = (
                f"take this step out: `scaler.step()` has stepped this optimizer, too ({times(fault.through)} times)"
            )
        elif not fault.updates:
            advice += ", then `scaler.update()` once"
        if fault.kind == "applied-scaled":
            return Report(
                f"{fault.count:,} steps went past the scaler, with gradients {_range(fault)}",
                cause="the loss was scaled, and only scaler.step(optimizer) divides its gradients",
                advice=advice,
                role="backward",
            )
        text = f"{fault.changed:,} of them" if fault.changed else "none of them"
        return Report(
            f"{fault.count:,} steps went past the scaler after unscale_; {text} with gradients that were not finite",
            cause="only scaler.step(optimizer) leaves out a step whose gradients have overflowed",
            advice=advice,
            role="unscaled",
        )

    def passes(self, file: SourceFile) -> list[scaling.ScaledPass]:
        """The passes of files that do not unscale by hand."""
        return [] if file.mentions("inv_scale") or scaling.by_hand(file) else super().passes(file)

    def wrong_by(self, one: scaling.ScaledPass, step: Effect) -> Effect | None:
        """A plain step after backwards that are all scaled, under no condition of its own that means no scaler."""
        backward = _stepped_too(one, step) or _scaled_before(one, step)
        # Who unscales and then looks for infinities by hand needs no `scaler.step`.
        checked = one.file.mentions("isfinite", "isnan", "isinf", "found_inf") and _is_divided(one, step)
        return backward if not checked else None

    def report(self, one: scaling.ScaledPass, step: Effect, backward: Effect) -> Finding:
        """At the step."""
        divided = _is_divided(one, step)
        scaler, optimizer = backward.through, step.subject
        twice = any(s.subject == optimizer for s in one.with_(step, "scaler_step"))
        effect = "infinite gradients are not left out" if divided else "the gradients are multiplied by the scale"
        advice = f"call `{scaler}.step({optimizer})`, then `{scaler}.update()` once"
        return self.suspect_at(
            step,
            f"{optimizer}.step() goes past {scaler}: "
            + (f"{scaler}.step({optimizer}) steps it too" if twice else effect),
            severity="error" if twice or (not divided and _is_torchs_own(step)) else "warning",
            cause=f"the loss is scaled by {scaler} at line {backward.line}, and only {scaler}.step({optimizer}) "
            "divides the gradients and leaves out a step that overflowed",
            advice=f"take `{optimizer}.step()` out" if twice else advice,
            edits=taken_out(one.file, step.event) if twice else _through_scaler(one, step, backward),
            related={"scaled": backward},
        )


def _is_torchs_own(step: Effect) -> bool:
    """Whether the optimizer is made here: what another package gives may take the scale off by itself."""
    return "optimizer" in step.event.unit.file.roles.of(receiver(step.event.call), step.event.unit)


def _range(fault: records.scaling.ScalingFault) -> str:
    """By how much gradients were wrong: at first, and at the worst where the scale has moved since."""
    worst = smaller(fault.factor)
    return worst if fault.first in (None, fault.factor) else f"{smaller(fault.first)} at first and {worst} at the worst"


def _is_divided(one: scaling.ScaledPass, step: Effect) -> bool:
    return any(u.subject == step.subject and one.sure(u, step) for u in one.of("unscale"))


def _scaled_before(one: scaling.ScaledPass, step: Effect) -> Effect | None:
    """The scaled backward whose gradients a plain step applies."""
    before = one.before(step, "backward")
    if not before or step.through or any(not scaling.is_scaled(b) or b.through == "" for b in before):
        return None
    backward = before[-1]
    if any(not scaling.is_scaled(b) for b in one.with_(step, "backward")):
        return None
    if not one.sure(backward, step) or one.chooses_precision(step, backward):
        return None
    # Beside a step through the scaler, what is only named like an optimizer may be something else.
    if one.steps and "optimizer" not in one.file.roles.of(receiver(step.event.call), step.event.unit):
        return None
    return backward if scaling.is_scaler(backward.through, backward.at.unit) else None


def _stepped_too(one: scaling.ScaledPass, step: Effect) -> Effect | None:
    """The backward of a step through the scaler that a plain one of the same optimizer follows in the same pass."""
    for other in one.steps:
        later = other.subject == step.subject and other.order < step.order and one.sure(step, other)
        if not later or step.through or leaves(other, step) or one.between(other, step, "backward"):
            continue
        before = [b for b in one.scaled if b.order < other.order and one.sure(b, other)]
        if before and scaling.is_scaler(before[-1].through, before[-1].at.unit):
            return before[-1]
    return None


def _through_scaler(one: scaling.ScaledPass, step: Effect, backward: Effect) -> list[Edit]:
    """`scaler.step(optimizer)` in the place of a plain step, and an update after it where there is none."""
    file, scaler, call, unit = one.file, backward.through, step.event.call, step.event.unit
    seen = scaling.visible(scaler, unit) and file.segment(receiver(call) or call) == step.subject
    if unit is not backward.event.unit or call.args or call.keywords or not seen:
        return []
    if not isinstance(step.event.parent, type(step.event.statement)):
        return []
    found = [edits.replace(file, call, f"{scaler}.step({step.subject})")]
    if any(u.through == scaler for u in one.of("update")):
        return found
    alone = len(one.optimizers) == 1
    return together(found, edits.after(file, step.event.statement, f"{scaler}.update()") if alone else [])
