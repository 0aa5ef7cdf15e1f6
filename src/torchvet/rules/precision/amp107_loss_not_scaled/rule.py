"""AMP107: a loss goes backward unscaled, and the scaler divides its gradients all the same."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, Recording, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, of, smaller
from torchvet.source.model import edits, receiver


class LossNotScaled(scaling.ScalerOrderRule, ScalerRule):
    """A loss goes backward unscaled and is stepped through the scaler, which divides its gradients."""

    severity = "error"
    words = ("caler",)
    kinds = ("not-scaled", "other-scaler")
    refusals = ("_scale is None",)
    fix_changes_results = True

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Gradients that were divided by a scale that they had never been multiplied with."""
        how = "unscaled" if fault.kind == "not-scaled" else "scaled by another scaler"
        return Report(
            f"this loss goes backward {how}: in {of(fault.applied, fault.steps)} its gradients were "
            f"{smaller(fault.factor)}",
            cause="scaler.step(optimizer) divides every gradient of the optimizer by its scale",
            advice="write `scaler.scale(loss).backward()`, with the scaler that steps this optimizer",
        )

    def of_refusal(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """A step of a scaler that had never scaled anything."""
        return Report(
            f"{fault.method} is refused: no loss was ever scaled",
            cause="the backward before it started from a loss that the scaler has not seen",
            advice="write `scaler.scale(loss).backward()`",
            role="backward",
            place=self.suspected(recording, fault.place) or fault.other,
        )

    def passes(self, file: SourceFile) -> list[scaling.ScaledPass]:
        """The passes of files that do not scale by hand."""
        return [] if scaling.by_hand(file) else super().passes(file)

    def in_pass(self, one: scaling.ScaledPass) -> Iterator[Finding]:
        """A plain backward before `scaler.step`, in a pass that scales nothing, or scales its other losses."""
        for step in one.steps:
            for backward in one.backwards:
                if _is_plain_before(one, backward, step) and _is_forgotten(one, backward, step):
                    yield self._finding(one, backward, step)

    def _finding(self, one: scaling.ScaledPass, backward: Effect, step: Effect) -> Finding:
        loss, scaler = backward.subject or "the loss", step.through
        text = "" if one.scaled else ", which raises where it has scaled nothing"
        return self.suspect_at(
            backward,
            f"{loss} goes backward unscaled, and {scaler}.step divides its gradients{text}",
            cause=f"{one.text(step)} divides every gradient of {step.subject} by the scale",
            advice=f"write `{scaler}.scale({loss}).backward()`",
            edits=_scaled(one, backward, step),
            related={"stepped": step},
        )


def _is_plain_before(one: scaling.ScaledPass, backward: Effect, step: Effect) -> bool:
    """Whether a backward that nothing scales comes before a scaler's step in every pass that makes it."""
    plain = not backward.through and not scaling.is_scaled(backward)
    if not plain or backward.order > step.order or not one.sure(backward, step):
        return False
    # What goes backward before there is a scaler is another matter, a trial perhaps.
    made = backward.event.unit.bindings.get(step.through, ())
    if made and all(m.index > backward.event.index for m in made) and backward.event.loop is None:
        return False
    return scaling.is_scaler(step.through, step.at.unit) and not scaling.may_catch(backward.event)


def _is_forgotten(one: scaling.ScaledPass, backward: Effect, step: Effect) -> bool:
    """Whether nothing is scaled in a pass, or all but one of the losses whose gradients a step divides."""
    scaled = [b for b in one.scaled if not one.excludes(b, step)]
    if not scaled:
        units = {id(e.event.unit) for e in one.effects} | {id(e.at.unit) for e in one.effects}
        return not one.scaled and not any(id(e.unit) in units for e in one.file.calls("scale"))
    cleared = one.between(backward, step, "zero_grad", "scaler_step", "step")
    divided = [u for u in one.of("unscale") if u.order < backward.order]
    # The plain loss may train another optimizer's parameters, which the scaler never divides.
    alone = one.optimizers == {step.subject} and step.subject
    return bool(alone) and not cleared and not divided and any(one.sure(b, step) for b in scaled)


def _scaled(one: scaling.ScaledPass, backward: Effect, step: Effect) -> list[Edit]:
    on, unit = receiver(backward.event.call), backward.event.unit
    known = on is not None and one.file.segment(on) == backward.subject and unit is step.event.unit
    if on is None or not known or not scaling.visible(step.through, unit):
        return []
    return [edits.replace(one.file, on, f"{step.through}.scale({backward.subject})")]
