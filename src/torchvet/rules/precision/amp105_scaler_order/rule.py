"""AMP105: the scaler's calls come in an order that it refuses, or that undoes its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules.kit import (
    Edit,
    Effect,
    Finding,
    Iterator,
    RankRecording,
    Recording,
    Rule,
    Sequence,
    SourceFile,
    calls_at,
)
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.source.model import edits, receiver

if TYPE_CHECKING:
    from torchvet.recording.records.scaling import ScalingFault

_REFUSED = (
    "No inf checks were recorded prior to update", "step() has already been called",
    "unscale_() is being called after step",
)  # fmt: skip
"""What torch says to a wrong order."""


class ScalerOrder(Rule):
    """The scaler's calls come in an order that it refuses, or that undoes its work."""

    code = "AMP105"
    name = "scaler-order"
    summary = "`unscale_`, `step` and `update` of a scaler come in the wrong order, or one is missing"
    severity = "error"
    words = ("caler",)

    bad_raises = "step() has already been called since the last update()"
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Orders that torch refused, and the two that it does not notice."""
        for fault in runs.faults(rank, "update-before-step", "unscaled-too-early"):
            early = fault.kind == "unscaled-too-early"
            yield runs.seen(
                self, rank, fault, ("unscale_ runs before the backward" if early else "update() runs before step()")
                + f": in {runs.of(fault.applied, fault.steps)} the gradients were {runs.smaller(fault.factor)}",
                severity=runs.grade(fault),
                cause="the scaler takes gradients for divided that were not there yet" if early else
                "update() makes the scaler forget that unscale_ has divided the gradients: step() divides again",
                advice="keep the order: scale and backward, `unscale_` if needed, `step`, `update`",
            )  # fmt: skip
        for fault, severity in runs.refused(rank, *_REFUSED):
            if _REFUSED[0] in (fault.error or "") and self._is_accumulation(recording, fault):
                continue
            yield runs.seen(
                self, rank, fault, f"{fault.method} is refused: {(fault.error or '').partition(': ')[2]}",
                severity=severity, place=runs.suspected(self, recording, fault.place),
                cause="a scaler goes through scale, unscale_ (optional), step and update, once each in a step",
                advice="call `scaler.update()` once, after the steps of all optimizers and after nothing else",
            )  # fmt: skip

    @staticmethod
    def _is_accumulation(recording: Recording, fault: ScalingFault) -> bool:
        """Whether source knows this line for an update in the middle of an accumulation, which is another rule's."""
        from torchvet.rules.precision.amp104_scale_changed_mid_accumulation.rule import ScaleChangedMidAccumulation

        return runs.suspected(ScaleChangedMidAccumulation(), recording, fault.place) is not None

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Where the file never updates the scaler: an update after its step."""
        for stepped, on in calls_at(file, finding, "step"):
            if not file.mentions(".update("):
                return edits.after(file, stepped.statement, f"{file.segment(on)}.update()")
        return ()

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Each step of a scaler against the updates and the `unscale_` calls of its pass."""
        for one in scaling.passes(file):
            for step in one.steps:
                for at, finding in self._wrong(file, one, step):
                    if not scaling.may_catch(at.event):
                        yield finding

    def _wrong(self, file: SourceFile, one: scaling.Pass, step: Effect) -> Iterator[tuple[Effect, Finding]]:
        updates = [u for u in one.step.of("update") if u.through == step.through and not one.excludes(u, step)]
        before = [u for u in updates if u.order < step.order]
        if not updates:
            yield from self._missing(file, one, step)
        elif len(before) == len(updates) and one.sure(before[0], step) and self._first(one, before[0]):
            yield before[0], self._early(file, one, before[0], step)
        for other in one.steps:
            alike = (other.subject, other.through) == (step.subject, step.through) and step.subject
            again = alike and other.order < step.order and one.sure(other, step)
            if again and not one.between(other, step, "update"):
                yield step, self._twice(file, step, other)
        for unscale in one.step.of("unscale"):
            if unscale.subject == step.subject and unscale.order > step.order and self._late(one, step, unscale):
                yield unscale, self._after(file, step, unscale)

    @staticmethod
    def _first(one: scaling.Pass, update: Effect) -> bool:
        """Whether an update comes before every step of its scaler."""
        return all(s.order > update.order for s in one.steps if s.through == update.through)

    @staticmethod
    def _late(one: scaling.Pass, step: Effect, unscale: Effect) -> bool:
        """Whether an `unscale_` belongs to no later step, nor to a backward between."""
        later = [s for s in one.steps if s.order > unscale.order and s.subject == step.subject]
        return not later and one.sure(step, unscale) and not one.between(step, unscale, "backward")

    def _missing(self, file: SourceFile, one: scaling.Pass, step: Effect) -> Iterator[tuple[Effect, Finding]]:
        unit = step.at.unit
        others = [e for e in file.calls("update") if file.roles.is_a("scaler", receiver(e.call), e.unit)]
        elsewhere = any(e.unit is not unit for e in others)
        inside = [e for e in others if e.unit is unit]
        if elsewhere or not any(one.sure(b, step) for b in one.scaled) or self._may_update(one, step):
            return
        if inside and not all(scaling.deeper(one.step.loop, e.loop) for e in inside):
            return
        last = step is [s for s in one.steps if s.through == step.through][-1]
        if not last or not step.event.unit.file.mentions(".scale("):
            return
        call, own = f"{step.through}.update()", receiver(step.event.call)
        put = f"{file.segment(own)}.update()" if own is not None else ""
        yield step, self.suspect(
            file, step.event, f"nothing calls {call} after this step: the next one raises",
            severity="error" if one.step.loop is not None else "warning",
            cause=f"{step.through} notes that it has stepped {step.subject or 'the optimizer'} and forgets it only at "
            "update(), which also changes the scale",
            advice=f"call `{call}` once after the steps of all optimizers", safe=True,
            edits=edits.after(file, step.event.statement, put) if put and not inside else (),
        )  # fmt: skip

    @staticmethod
    def _may_update(one: scaling.Pass, step: Effect) -> bool:
        """Whether something that is not seen here is given the scaler, or is a method of the object that has it."""
        name, own = step.through, step.through.partition(".")[0]
        for event in one.step.opaque:
            given = [*event.call.args, *(k.value for k in event.call.keywords)]
            if any(event.unit.file.segment(g) in (name, own) for g in given):
                return True
            function = event.unit.file.segment(event.call.func)
            if "." in name and function.startswith(f"{own}.") and function.count(".") == 1:
                return True
        return False

    def _early(self, file: SourceFile, one: scaling.Pass, update: Effect, step: Effect) -> Finding:
        unscaled = [u for u in one.step.of("unscale") if u.order < update.order]
        text = "the gradients are divided twice" if unscaled else "it raises, since nothing was checked yet"
        return self.suspect(
            file, update.event, f"{update.through}.update() comes before {step.through}.step({step.subject}): {text}",
            cause=f"update() settles what step() has found; {step.through} forgets there what it did to the gradients",
            advice=f"call `{update.through}.update()` after `{file.segment(step.event.node)}`", safe=True,
            edits=self._swapped(file, one, update, step),
            related=[self.also(file, "stepped", step.event, file.segment(step.event.node))],
        )  # fmt: skip

    @staticmethod
    def _swapped(file: SourceFile, one: scaling.Pass, update: Effect, step: Effect) -> list[Edit]:
        last = [s for s in one.steps if s.through == step.through][-1]
        if last.arms != update.arms or last.event.unit is not update.event.unit:
            return []
        taken = scaling.without(file, update.event)
        put = edits.after(file, last.event.statement, file.segment(update.event.node))
        return [*taken, *put] if taken and put else []

    def _twice(self, file: SourceFile, step: Effect, other: Effect) -> Finding:
        text = file.segment(step.event.node)
        return self.suspect(
            file, step.event, f"{text} is the second before {step.through}.update(): it raises",
            cause=f"{step.subject} has been stepped at line {other.line}",
            advice="step each optimizer once, then update the scaler",
            related=[self.also(file, "stepped", other.event, file.segment(other.event.node))],
        )  # fmt: skip

    def _after(self, file: SourceFile, step: Effect, unscale: Effect) -> Finding:
        text = file.segment(unscale.event.node)
        return self.suspect(
            file, unscale.event, f"{text} comes after {step.through}.step({step.subject})",
            cause="before update() it raises; after update() the next step takes the gradients for unscaled and "
            "applies them multiplied by the scale",
            advice=f"call `{text}` between the last backward and `{file.segment(step.event.node)}`",
            related=[self.also(file, "stepped", step.event, file.segment(step.event.node))],
        )  # fmt: skip
