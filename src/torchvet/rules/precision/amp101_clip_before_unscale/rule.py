"""AMP101: gradients are clipped while they are still multiplied by the loss scale."""

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
    Step,
)
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.scaled_steps import unscaled_first
from torchvet.source.model import edits, receiver
from torchvet.source.model.steps import text_of

if TYPE_CHECKING:
    from torchvet.recording.records.scaling import ScalingFault


class ClipBeforeUnscale(Rule):
    """Gradients are clipped while they are still multiplied by the loss scale."""

    code = "AMP101"
    name = "clip-before-unscale"
    summary = "Gradients are clipped while they are still multiplied by the loss scale"
    severity = "error"
    words = ("clip_grad",)

    fix_changes_results = True
    needs_at_work = "a scaler"

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Divide before clipping, where one function does both and steps."""
        return unscaled_first(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Clippings that met scaled gradients, graded by whether the threshold acted."""
        for fault in runs.faults(rank, "clipped-while-scaled"):
            limit, scale = fault.limit or 0.0, fault.scale or 1.0
            acted = fault.bit if fault.norm is not None else fault.applied
            spared = fault.bit - fault.needed
            text = f"; {spared:,} of them had no need of it" if spared > 0 else ""
            yield runs.seen(
                self, rank, fault, f"gradients are clipped while multiplied by the scale {scale:,.0f}: a threshold "
                f"of {limit:g} acts as {limit / scale:.2g}, in {_times(fault, acted)}{text}",
                severity="error" if acted and scale > 1 else "info",
                cause="nothing has divided the gradients by the scale between the backward and this line",
                advice="call `scaler.unscale_(optimizer)` after the last backward and before clipping",
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A clip between a scaled backward and `scaler.step`, with no `unscale_` on the way."""
        if scaling.by_hand(file):
            return
        for step in file.steps:
            for clip in step.of("clip"):
                steps = self._scaled_step_after(step, clip)
                if steps is not None:
                    yield self._finding(file, clip, steps)

    @staticmethod
    def _scaled_step_after(step: Step, clip: Effect) -> Effect | None:
        """The `scaler.step` that applies what was clipped while scaled; None where all is well or not sure."""
        before = [e for e in step.effects if e.order < clip.order and not e.excludes(clip)]
        backward = [e for e in before if e.kind == "backward"]
        if not backward or not backward[-1].scaled or any(e.kind == "unscale" for e in before):
            return None
        if clip.through and clip.through in step.optimizers:
            return None  # an optimizer that clips by itself knows the scale, or not: that is another file's affair
        steps = [e for e in step.of("scaler_step") if e.order > clip.order and not e.excludes(clip)]
        after = [e for e in steps if scaling.goes_through(e)]
        return after[0] if after else None

    def _finding(self, file: SourceFile, clip: Effect, step: Effect) -> Finding:
        # Written with the names of the function that steps: those of its caller need not be known there.
        scaler, given = text_of(receiver(step.event.call)), step.event.call.args
        call = f"{scaler}.unscale_({text_of(given[0]) if given else step.subject})"
        # In another function or loop, or where the step asks for more, the line would unscale something else, at
        # another time or twice. A clip that asks for more is as good a place: the step unscales what is left.
        same = clip.event.unit is step.event.unit and clip.event.loop is step.event.loop
        same = same and all(arm in clip.arms for arm in step.arms)
        return self.suspect(
            file, clip.event, f"gradients are clipped before {call}: the threshold is max_norm divided by the scale",
            cause=f"{scaler}.scale(…).backward() leaves gradients multiplied by the loss scale, and nothing divides "
            "them by it before they are clipped",
            advice=f"call `{call}` after the last backward and before clipping", safe=True,
            edits=edits.before(file, clip.event.statement, call) if same else (),
            related=[self.also(file, "stepped", step.event, file.segment(step.event.node))],
        )  # fmt: skip


def _times(fault: ScalingFault, acted: int) -> str:
    """How often the threshold acted, of the steps that clipped; of those whose norm was read, where that is few."""
    if not 0 < fault.looked < fault.count:
        return runs.of(acted, fault.count)
    return f"{acted:,} of the {fault.looked:,} looked at, of {fault.count:,} steps"
