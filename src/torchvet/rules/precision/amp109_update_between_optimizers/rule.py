"""AMP109: the scale is updated between the steps of two optimizers that share a backward."""

from __future__ import annotations

import ast

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
from torchvet.source.model import Event, edits, targets_of


class UpdateBetweenOptimizers(Rule):
    """The scale is updated between the steps of two optimizers that share a backward."""

    code = "AMP109"
    name = "update-between-optimizers"
    summary = "`scaler.update()` runs between the steps of two optimizers whose gradients exist already"
    severity = "warning"
    words = ("caler",)

    fix_changes_results = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Optimizers stepped after an update that came between their backward and them."""
        for fault in runs.faults(rank, "update-between"):
            twice = fault.factor is not None and fault.factor < 0.1
            often = fault.changed > 0.02 * fault.count
            yield runs.seen(
                self, rank, fault, "this update comes between the backward and the step of another optimizer: in "
                f"{runs.of(fault.changed, fault.count)} its gradients were {runs.smaller(fault.factor)}"
                if fault.changed else "this update comes between the backward and the step of another optimizer; "
                f"the scale has not changed there in {fault.count:,} steps",
                severity="error" if twice else "warning" if often else "info",
                cause="update() may change the scale, and forgets which optimizers have been unscaled",
                advice="call `scaler.update()` once, after the steps of all optimizers",
            )  # fmt: skip

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """An update that ends a loop over the optimizers comes after the loop."""
        return next(
            filter(None, (_after_the_loop(file, update) for update, _ in calls_at(file, finding, "update"))), ()
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """An update after one step and before another, with no scaled backward between it and the other."""
        for one in scaling.passes(file):
            for update in one.step.of("update"):
                later = self._step_after(one, update) or self._same_in_loop(one, update)
                if later is not None:
                    yield self._finding(file, one, update, later)

    @staticmethod
    def _step_after(one: scaling.Pass, update: Effect) -> Effect | None:
        steps = [s for s in one.steps if s.through == update.through and s.subject and not one.excludes(s, update)]
        before = [s for s in steps if s.order < update.order]
        for later in steps:
            known = [b for b in one.backwards if b.order < update.order and one.sure(b, later)]
            if later.order < update.order or not known or not one.sure(update, later):
                continue
            other = any(s.subject != later.subject and one.sure(s, later) for s in before)
            if other and not one.between(update, later, "backward"):
                return later
        return None

    @staticmethod
    def _same_in_loop(one: scaling.Pass, update: Effect) -> Effect | None:
        """`for opt in optimizers: scaler.step(opt); scaler.update()` after the backward."""
        loop = update.event.loop
        if loop is None or not isinstance(loop.node, ast.For):
            return None
        if any(isinstance(s, ast.If) and any(isinstance(b, ast.Continue) for b in s.body) for s in loop.node.body):
            return None  # `if number != chosen: continue`: one of them is stepped
        targets = {t.id for t in targets_of(loop.node) if isinstance(t, ast.Name)}
        if any(b.event.unit is update.event.unit and b.event.loop is loop for b in one.backwards):
            return None
        if any(b.at.inside(loop) for b in one.backwards):
            return None
        mine = [s for s in one.steps if s.event.loop is loop and s.order < update.order]
        return next((s for s in mine if s.subject in targets and one.scaled), None)

    def _finding(self, file: SourceFile, one: scaling.Pass, update: Effect, later: Effect) -> Finding:
        again = [u for u in one.step.of("unscale") if u.subject == later.subject and u.order < update.order]
        spare = any(u.order > later.order and one.sure(u, later) for u in one.step.of("update") if u is not update)
        looped = _after_the_loop(file, update.event) if later.order < update.order else []
        text = "its gradients are divided twice" if again and later.order > update.order else "with the new scale"
        return self.suspect(
            file, update.event, f"{update.through}.update() runs before {later.subject} is stepped, {text}",
            severity="error" if again and later.order > update.order else "warning",
            cause=f"the gradients of {later.subject} were multiplied by the scale that held before this update",
            advice=f"call `{update.through}.update()` once, after the last `{update.through}.step`", safe=spare,
            edits=scaling.without(file, update.event) if spare else looped,
            related=[self.also(file, "stepped", later.event, file.segment(later.event.node))],
        )  # fmt: skip


def _after_the_loop(file: SourceFile, update: Event) -> list[Edit]:
    """An update that ends a loop with steps in it, one margin further out."""
    loop = update.loop.node if update.loop is not None else None
    steps = [e for e in update.unit.calls.get("step", ()) if e.loop is update.loop]
    if not isinstance(loop, ast.For) or loop.orelse or loop.body[-1] is not update.statement or not steps:
        return []
    (line, column), margin = edits.start_of(file, update.statement), edits.start_of(file, loop)[1] - 1
    if len(loop.body) < 2 or not edits.stands_alone(file, update.statement):
        return []
    return [Edit(path=file.path, start=(line, 1), end=(line, column), text=file.lines[loop.lineno - 1][:margin])]
