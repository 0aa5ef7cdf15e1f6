"""AMP104: the scale is updated in the middle of an accumulation."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.shared.training_loops import without_statement
from torchvet.source.model import edits

_NOTHING_CHECKED = "No inf checks were recorded prior to update"


class ScaleChangedMidAccumulation(Rule):
    """The scale is updated in the middle of an accumulation."""

    code = "AMP104"
    name = "scale-changed-mid-accumulation"
    summary = "`scaler.update()` runs at every micro-step, `scaler.step` only at the end of the accumulation"
    severity = "error"
    words = ("caler",)

    bad_raises = "No inf checks were recorded prior to update"

    fix_may_change_losses = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Updates within an accumulation: gradients of several scales were added up, or torch refused."""
        for fault in runs.faults(rank, "scale-changed"):
            # As small as the scale is large: they were divided again after the update.
            again = bool(fault.factor and fault.scale and fault.factor * fault.scale <= 1.0)
            both = "`scaler.unscale_` and `scaler.update` once each, before and" if again else "`scaler.update()` once,"
            yield runs.seen(
                self, rank, fault, "the scale is updated between the backward passes of one accumulation: in "
                f"{runs.of(fault.changed, fault.steps)} the earlier ones were {runs.smaller(fault.factor)}",
                severity="error" if fault.changed > 0.02 * fault.count else "info",
                cause="update() may change the scale, and forgets what has been divided"
                + (": unscale_ divides it again" if again else ""),
                advice=f"call {both} after the `scaler.step` that ends the accumulation",
            )  # fmt: skip
        for fault, severity in runs.refused(rank, _NOTHING_CHECKED):
            at = runs.suspected(self, recording, fault.place)
            if at is not None:
                yield runs.seen(
                    self, rank, fault, "update() is refused in the middle of an accumulation: nothing was stepped "
                    "since the last", severity=severity, place=at,
                    cause="update() settles what step() has found, and that waits for the end of the accumulation",
                    advice="move `scaler.update()` right after `scaler.step(optimizer)`",
                )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """An update in every pass with a scaled backward, where every step of the scaler waits for the last pass."""
        for one in scaling.passes(file):
            for update in one.step.of("update"):
                step = self._step_that_waits(one, update)
                if step is not None:
                    yield self._finding(file, one, update, step)

    @staticmethod
    def _step_that_waits(one: scaling.Pass, update: Effect) -> Effect | None:
        steps = [s for s in one.steps if s.through == update.through]
        every = [b for b in one.scaled if not one.waits(b, update) and not one.excludes(b, update)]
        if not steps or not every or any(scaling.counts_alone(update, b) for b in every):
            return None
        return steps[0] if all(one.waits(s, update) for s in steps) else None

    def _finding(self, file: SourceFile, one: scaling.Pass, update: Effect, step: Effect) -> Finding:
        scaler = update.through
        early = [u for u in one.step.of("unscale") if not one.waits(u, update)]
        text = "gradients of different scales are added up" if early else "it raises where nothing was stepped"
        return self.suspect(
            file, update.event, f"{scaler}.update() runs at every micro-step, {scaler}.step only at the last: {text}",
            cause=f"{scaler}.update() belongs to {scaler}.step({step.subject}) at line {step.line}, which waits for "
            "the end of the accumulation",
            advice=f"move `{scaler}.update()` right after `{file.segment(step.event.node)}`", safe=not early,
            edits=(self._moved_together if early else self._moved)(file, one, update, step),
            related=[self.also(file, "stepped", step.event, file.segment(step.event.node))],
        )  # fmt: skip

    def _moved_together(
        self, file: SourceFile, one: scaling.Pass, update: Effect, step: Effect
    ) -> list[Edit]:  # fmt: skip
        """The update after the step, and before it what unscales and clips, where that stands right before the branch
        that the step waits in."""
        early = [u for u in one.step.of("unscale") if not one.waits(u, update)]
        branch, unscaled = step.event.context.arms[-1][0] if step.event.context.arms else None, early[0].event.statement
        body = next((b for b in _blocks(step.event.unit.node) if unscaled in b and branch in b), None)
        moved = self._moved(file, one, update, step)
        if not isinstance(branch, ast.If) or body is None or not moved or len(early) > 1:
            return []
        between = body[body.index(unscaled) : body.index(branch)]
        clips = {id(e.event.statement) for e in one.step.of("clip", "unscale")}
        lone = all(id(s) in clips and edits.stands_alone(file, s) and s.lineno == s.end_lineno for s in between)
        if not between or not lone or step.event.statement not in branch.body:
            return []
        put = [edits.before(file, step.event.statement, file.segment(s)) for s in between]
        joined = Edit(path=file.path, start=put[0][0].start, end=put[0][0].end, text="".join(p[0].text for p in put))
        taken = [edit for s in between for edit in without_statement(file, s)]
        return [joined, *taken, *moved]

    @staticmethod
    def _moved(file: SourceFile, one: scaling.Pass, update: Effect, step: Effect) -> list[Edit]:
        alone = len(one.steps) == 1 and step.event.unit is update.event.unit
        taken = scaling.without(file, update.event) if alone and not update.event.call.args else []
        put = edits.after(file, step.event.statement, file.segment(update.event.node)) if taken else []
        return [*put, *taken] if put else []


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements within a node."""
    for one in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(one, field, None)
            if isinstance(block, list):
                yield block
