"""AMP107: a loss goes backward unscaled, and the scaler divides its gradients all the same."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.source.model import edits, receiver


class LossNotScaled(Rule):
    """A loss goes backward unscaled, and the scaler divides its gradients all the same."""

    code = "AMP107"
    name = "loss-not-scaled"
    summary = "A loss goes backward unscaled and is stepped through the scaler, which divides its gradients"
    severity = "error"
    words = ("caler",)

    fix_changes_results = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Gradients that were divided by a scale that they had never been multiplied with."""
        for fault in runs.faults(rank, "not-scaled", "other-scaler"):
            how = "unscaled" if fault.kind == "not-scaled" else "scaled by another scaler"
            yield runs.seen(
                self, rank, fault, f"this loss goes backward {how}: in {runs.of(fault.applied, fault.steps)} its "
                f"gradients were {runs.smaller(fault.factor)}", severity=runs.grade(fault),
                cause="scaler.step(optimizer) divides every gradient of the optimizer by its scale",
                advice="write `scaler.scale(loss).backward()`, with the scaler that steps this optimizer",
            )  # fmt: skip
        for fault, severity in runs.refused(rank, "_scale is None"):
            yield runs.seen(
                self, rank, fault, f"{fault.method} is refused: no loss was ever scaled", severity=severity,
                place=runs.suspected(self, recording, fault.place) or fault.other, role="backward",
                cause="the backward before it started from a loss that the scaler has not seen",
                advice="write `scaler.scale(loss).backward()`",
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A plain backward before `scaler.step`, in a pass that scales nothing, or scales its other losses."""
        if scaling.by_hand(file):
            return
        for one in scaling.passes(file):
            for step in one.steps:
                for backward in one.backwards:
                    if self._is_forgotten(file, one, backward, step):
                        yield self._finding(file, one, backward, step)

    @staticmethod
    def _is_forgotten(file: SourceFile, one: scaling.Pass, backward: Effect, step: Effect) -> bool:
        plain = not backward.through and not scaling.is_scaled(backward)
        if not plain or backward.order > step.order or not one.sure(backward, step):
            return False
        if not scaling.is_scaler(step.through, step.at.unit) or scaling.may_catch(backward.event):
            return False
        scaled = [b for b in one.scaled if not one.excludes(b, step)]
        if not scaled:
            units = {id(e.event.unit) for e in one.effects} | {id(e.at.unit) for e in one.effects}
            return not one.scaled and not any(id(e.unit) in units for e in file.calls("scale"))
        cleared = one.between(backward, step, "zero_grad", "scaler_step", "step")
        divided = [u for u in one.step.of("unscale") if u.order < backward.order]
        alone = one.step.optimizers == {step.subject} and step.subject
        return bool(alone) and not cleared and not divided and any(one.sure(b, step) for b in scaled)

    def _finding(self, file: SourceFile, one: scaling.Pass, backward: Effect, step: Effect) -> Finding:
        loss, scaler = backward.subject or "the loss", step.through
        text = "" if one.scaled else ", which raises where it has scaled nothing"
        return self.suspect(
            file, backward.event, f"{loss} goes backward unscaled, and {scaler}.step divides its gradients{text}",
            cause=f"{file.segment(step.event.node)} divides every gradient of {step.subject} by the scale",
            advice=f"write `{scaler}.scale({loss}).backward()`", safe=True, edits=self._edits(file, backward, step),
            related=[self.also(file, "stepped", step.event, file.segment(step.event.node))],
        )  # fmt: skip

    @staticmethod
    def _edits(file: SourceFile, backward: Effect, step: Effect) -> list[Edit]:
        on = receiver(backward.event.call)
        unit = backward.event.unit
        if on is None or file.segment(on) != backward.subject or unit is not step.event.unit:
            return []
        if not scaling.visible(step.through, unit):
            return []
        return [edits.replace(file, on, f"{step.through}.scale({backward.subject})")]
