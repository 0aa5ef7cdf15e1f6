"""AMP101: gradients are clipped while they are still multiplied by the loss scale."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Effect, Finding, Recording, Sequence, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, of
from torchvet.rules.precision.fixes.scaled_steps import unscaled_first
from torchvet.rules.shared.order_rule import OrderRule, Pass
from torchvet.source.model import edits, receiver
from torchvet.source.model.steps import text_of


class ClipBeforeUnscale(OrderRule[Pass], ScalerRule):
    """Gradients are clipped while they are still multiplied by the loss scale."""

    severity = "error"
    words = ("clip_grad",)
    judged = ("clip",)
    kinds = ("clipped-while-scaled",)
    fix_changes_results = True

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Clippings that met scaled gradients, graded by whether the threshold acted."""
        limit, scale = fault.limit or 0.0, fault.scale or 1.0
        acted = fault.bit if fault.norm is not None else fault.applied
        spared = fault.bit - fault.needed
        how = of(acted, fault.count)
        if 0 < fault.looked < fault.count:
            # On a device, where reading waits, the norm was read the first few times only.
            how = f"{acted:,} of the {fault.looked:,} looked at, of {fault.count:,} steps"
        text = f"; {spared:,} of them had no need of it" if spared > 0 else ""
        return Report(
            f"gradients are clipped while multiplied by the scale {scale:,.0f}: a threshold of {limit:g} acts as "
            f"{limit / scale:.2g}, in {how}{text}",
            # A threshold that never acted changed nothing, whatever the gradients were multiplied by.
            severity="error" if acted and scale > 1 else "info",
            cause="nothing has divided the gradients by the scale between the backward and this line",
            advice="call `scaler.unscale_(optimizer)` after the last backward and before clipping",
        )

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Divide before clipping, where one function does both and steps."""
        return unscaled_first(file, finding)

    def passes(self, file: SourceFile) -> list[Pass]:
        """All steps, of files that do not unscale by hand."""
        return [] if scaling.by_hand(file) else [Pass(step) for step in file.steps]

    def wrong_by(self, one: Pass, clip: Effect) -> Effect | None:
        """A clip between a scaled backward and `scaler.step`, with no `unscale_` on the way."""
        before = [e for e in one.of("backward", "unscale") if e.order < clip.order and not e.excludes(clip)]
        if not before or not before[-1].scaled or any(e.kind == "unscale" for e in before):
            return None
        if clip.through and clip.through in one.optimizers:
            return None  # an optimizer that clips by itself may know the scale; its code is elsewhere
        steps = (e for e in one.of("scaler_step") if e.order > clip.order and not e.excludes(clip))
        return next(filter(scaling.goes_through, steps), None)

    def report(self, one: Pass, clip: Effect, step: Effect) -> Finding:
        """At the clip."""
        # Written with the names of the function that steps: those of its caller need not be known there.
        scaler, given = text_of(receiver(step.event.call)), step.event.call.args
        call = f"{scaler}.unscale_({text_of(given[0]) if given else step.subject})"
        # In another function or loop, or where the step asks for more, the line would unscale something else, at
        # another time or twice. A clip that asks for more is as good a place: the step unscales what is left.
        same = clip.event.unit is step.event.unit and clip.event.loop is step.event.loop
        same = same and all(arm in clip.arms for arm in step.arms)
        return self.suspect_at(
            clip,
            f"gradients are clipped before {call}: the threshold is max_norm divided by the scale",
            cause=f"{scaler}.scale(…).backward() leaves gradients multiplied by the loss scale, and nothing divides "
            "them by it before they are clipped",
            advice=f"call `{call}` after the last backward and before clipping",
            edits=edits.before(one.file, clip.event.statement, call) if same else (),
            related={"stepped": step},
        )
