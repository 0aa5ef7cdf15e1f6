"""AMP105: the scaler's calls come in an order that it refuses, or that undoes its work."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, Recording, Sequence, SourceFile, calls_at, records
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, of, smaller
from torchvet.rules.precision._scaling import ScaledPass, ScalerOrderRule, may_catch
from torchvet.rules.precision.fixes.moves import taken_out, together
from torchvet.rules.shared.order_rule import deeper
from torchvet.source.model import edits, given, receiver

_NOTHING_CHECKED = "No inf checks were recorded prior to update"


class ScalerOrder(ScalerOrderRule, ScalerRule):
    """`unscale_`, `step` and `update` of a scaler come in the wrong order, or one is missing."""

    severity = "error"
    words = ("caler",)
    kinds = ("update-before-step", "unscaled-too-early")
    refusals = (_NOTHING_CHECKED, "step() has already been called", "unscale_() is being called after step")
    bad_raises = "step() has already been called since the last update()"

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """The two orders that torch does not notice."""
        early = fault.kind == "unscaled-too-early"
        what = "unscale_ runs before the backward" if early else "update() runs before step()"
        return Report(
            f"{what}: in {of(fault.applied, fault.steps)} the gradients were {smaller(fault.factor)}",
            cause="the scaler takes gradients for divided that were not there yet"
            if early
            else "update() makes the scaler forget that unscale_ has divided the gradients: step() divides again",
            advice="keep the order: scale and backward, `unscale_` if needed, `step`, `update`",
        )

    def of_refusal(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report | None:
        """An order that torch refused."""
        if _NOTHING_CHECKED in (fault.error or "") and self._is_accumulation(recording, fault):
            return None
        return Report(
            f"{fault.method} is refused: {(fault.error or '').partition(': ')[2]}",
            cause="a scaler goes through scale, unscale_ (optional), step and update, once each in a step",
            advice="call `scaler.update()` once, after the steps of all optimizers and after nothing else",
            place=self.suspected(recording, fault.place),
        )

    @staticmethod
    def _is_accumulation(recording: Recording, fault: records.scaling.ScalingFault) -> bool:
        """Whether source knows this line for an update in the middle of an accumulation, which is another rule's."""
        from torchvet.rules.precision.amp104_scale_changed_mid_accumulation.rule import ScaleChangedMidAccumulation

        return ScaleChangedMidAccumulation().suspected(recording, fault.place) is not None

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Where the file never updates the scaler: an update after its step."""
        for stepped, on in calls_at(file, finding, "step"):
            if not file.mentions(".update("):
                return edits.after(file, stepped.statement, f"{file.segment(on)}.update()")
        return ()

    def in_pass(self, one: ScaledPass) -> Iterator[Finding]:
        """Each step of a scaler against the updates and the `unscale_` calls of its pass."""
        for step in one.steps:
            for at, finding in self._wrong(one, step):
                if not may_catch(at.event):
                    yield finding

    def _wrong(self, one: ScaledPass, step: Effect) -> Iterator[tuple[Effect, Finding]]:
        updates = [u for u in one.with_(step, "update") if u.through == step.through]
        if updates:
            early = updates[-1].order < step.order and updates[0].order < _steps_of(one, step)[0].order
            if early and one.sure(updates[0], step):
                yield updates[0], self._early(one, updates[0], step)
        elif self._is_missing(one, step):
            yield step, self._missing(one, step)
        for other in one.steps:
            if _is_repeated(one, other, step):
                yield step, self._twice(one, step, other)
        for unscale in one.of("unscale"):
            if _is_late(one, step, unscale):
                yield unscale, self._after(one, step, unscale)

    def _is_missing(self, one: ScaledPass, step: Effect) -> bool:
        """Whether nothing updates the scaler after its last step, here or in another function."""
        file = one.file
        others = [e for e in file.calls("update") if file.roles.is_a("scaler", receiver(e.call), e.unit)]
        # An update in another function may be called between the steps, where this pass does not see it.
        if any(e.unit is not step.at.unit or not deeper(one.loop, e.loop) for e in others):
            return False
        if not any(one.sure(b, step) for b in one.scaled) or _may_update(one, step):
            return False
        return step is _steps_of(one, step)[-1] and file.mentions(".scale(")

    def _missing(self, one: ScaledPass, step: Effect) -> Finding:
        file, call, own = one.file, f"{step.through}.update()", receiver(step.event.call)
        outside = any(file.roles.is_a("scaler", receiver(e.call), e.unit) for e in file.calls("update"))
        after = edits.after(file, step.event.statement, f"{file.segment(own)}.update()") if own is not None else ()
        return self.suspect_at(
            step,
            f"nothing calls {call} after this step: the next one raises",
            severity="error" if one.loop is not None else "warning",
            cause=f"{step.through} notes that it has stepped {step.subject or 'the optimizer'} and forgets it only at "
            "update(), which also changes the scale",
            advice=f"call `{call}` once after the steps of all optimizers",
            safe=True,
            edits=() if outside else after,
        )

    def _early(self, one: ScaledPass, update: Effect, step: Effect) -> Finding:
        unscaled = [u for u in one.of("unscale") if u.order < update.order]
        text = "the gradients are divided twice" if unscaled else "it raises, since nothing was checked yet"
        return self.suspect_at(
            update,
            f"{update.through}.update() comes before {step.through}.step({step.subject}): {text}",
            cause=f"update() settles what step() has found; {step.through} forgets there what it did to the gradients",
            advice=f"call `{update.through}.update()` after `{one.text(step)}`",
            safe=True,
            edits=_swapped(one, update, _steps_of(one, step)[-1]),
            related={"stepped": step},
        )

    def _twice(self, one: ScaledPass, step: Effect, other: Effect) -> Finding:
        return self.suspect_at(
            step,
            f"{one.text(step)} is the second before {step.through}.update(): it raises",
            cause=f"{step.subject} has been stepped at line {other.line}",
            advice="step each optimizer once, then update the scaler",
            related={"stepped": other},
        )

    def _after(self, one: ScaledPass, step: Effect, unscale: Effect) -> Finding:
        text = one.text(unscale)
        return self.suspect_at(
            unscale,
            f"{text} comes after {step.through}.step({step.subject})",
            cause="before update() it raises; after update() the next step takes the gradients for unscaled and "
            "applies them multiplied by the scale",
            advice=f"call `{text}` between the last backward and `{one.text(step)}`",
            related={"stepped": step},
        )


def _steps_of(one: ScaledPass, step: Effect) -> list[Effect]:
    """All steps of a step's scaler."""
    return [s for s in one.steps if s.through == step.through]


def _is_repeated(one: ScaledPass, first: Effect, step: Effect) -> bool:
    """Whether a step is one more of the same optimizer before an update."""
    if not step.subject or (first.subject, first.through) != (step.subject, step.through) or first.order >= step.order:
        return False
    return one.sure(first, step) and not one.between(first, step, "update")


def _is_late(one: ScaledPass, step: Effect, unscale: Effect) -> bool:
    """Whether an `unscale_` after a step of its optimizer belongs to no later step, nor to a backward between."""
    if unscale.subject != step.subject or unscale.order <= step.order:
        return False
    later = any(s.order > unscale.order and s.subject == step.subject for s in one.steps)
    return not later and one.sure(step, unscale) and not one.between(step, unscale, "backward")


def _may_update(one: ScaledPass, step: Effect) -> bool:
    """Whether something that is not seen here is given the scaler, or is a method of the object that has it."""
    name, own = step.through, step.through.partition(".")[0]
    for event in one.opaque:
        if any(one.file.segment(g) in (name, own) for g in given(event.call)):
            return True
        function = one.file.segment(event.call.func)
        if "." in name and function.startswith(f"{own}.") and function.count(".") == 1:
            return True
    return False


def _swapped(one: ScaledPass, update: Effect, last: Effect) -> list[Edit]:
    if last.arms != update.arms or last.event.unit is not update.event.unit:
        return []
    put = edits.after(one.file, last.event.statement, one.text(update))
    return together(taken_out(one.file, update.event), put)
