"""AMP116: the learning rate schedule goes on where the scaler leaves the step out."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Effect, Finding, Iterator, Measured, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.scaled_steps import only_after_a_step
from torchvet.source.model import Event


class SchedulerOnSkippedStep(Rule):
    """The learning rate schedule goes on where the scaler leaves the step out."""

    code = "AMP116"
    name = "scheduler-on-skipped-step"
    summary = "The scheduler steps at every pass, also where the scaler has left the optimizer's step out"
    severity = "info"
    words = ("sched",)

    fix_changes_results = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Steps of a schedule that followed nothing but skipped steps, graded by their share of it."""
        for use in runs.uses(rank):
            spent, whole = use.schedule_spent, use.schedule_steps
            if spent:
                yield self.observed(
                    rank, severity="warning" if spent >= 5 and spent >= 0.1 * whole else "info",
                    place=use.schedule_place,
                    message=f"{spent:,} of {whole:,} steps of the learning rate schedule went by while the "
                    "optimizer's step was left out",
                    cause="scaler.step leaves a step out whose gradients are not finite, and the scheduler does "
                    "not know",
                    advice="call `scheduler.step()` only if `scaler.get_scale()` has not fallen since before the "
                    "step",
                    measured=Measured(steps=use.steps),
                )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A scheduler that steps wherever the scaler does, in the same loop, and does not ask for the scale."""
        if file.mentions("skip_lr", "skipped") or _compares_scale(file):
            return
        for one in scaling.passes(file):
            for step in one.steps:
                for scheduler in one.step.of("scheduler"):
                    if self._follows(one, step, scheduler):
                        yield self._finding(file, one, step, scheduler)

    @staticmethod
    def _follows(one: scaling.Pass, step: Effect, scheduler: Effect) -> bool:
        if scheduler.order < step.order or not one.sure(step, scheduler):
            return False
        known = {branch for branch, _ in scaling.around(step)}
        return not any(scaling.accumulates(b, scheduler) for b, _ in scaling.around(scheduler) if b not in known)

    def _finding(self, file: SourceFile, one: scaling.Pass, step: Effect, scheduler: Effect) -> Finding:
        return self.suspect(
            file, scheduler.event, f"{scheduler.subject}.step() goes on where {step.through} leaves a step out",
            cause=f"{step.through}.step({step.subject}) steps only if all gradients are finite, which early ones often "
            "are not",
            advice=f"call `{scheduler.subject}.step()` only if `{step.through}.get_scale()` has not fallen since "
            "before the step", edits=only_after_a_step(file, one, step),
            related=[self.also(file, "stepped", step.event, file.segment(step.event.node))],
        )  # fmt: skip


def _compares_scale(file: SourceFile) -> bool:
    """Whether a scale is read for more than a log: what is only logged decides nothing."""
    return any(not _only_logged(event) for event in file.calls("get_scale"))


def _only_logged(event: Event) -> bool:
    return isinstance(event.parent, (ast.Call, ast.FormattedValue, ast.Dict, ast.keyword))
