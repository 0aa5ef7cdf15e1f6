"""TRN102: gradients are cleared after backward, before the step that was to use them."""

from __future__ import annotations

import ast

from torchvet.recording.records.training import OptimizerUse
from torchvet.rules.kit import Edits, Effect, Finding, Findings, Measured, RankRecording, Recording, SourceFile, Step
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.seen_suspicions import confirmed
from torchvet.source.model.origins import identity

_ENOUGH = 4
"""Steps before what never happened is a habit."""


class GradientsClearedTooLate(loops.LoopRule):
    """Gradients are cleared after backward, before the step that was to use them."""

    severity = "error"
    words = ("zero_grad",)
    fix_changes_results = True

    silence_clears = False  # a run does not tell gradients that are zero from gradients that were cleared

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Optimizers that never had a gradient, where source shows what clears them before the step."""
        for use in rank.latest(OptimizerUse, "id"):
            if 0 < use.parameters == use.without_gradient_count and use.steps >= _ENOUGH:
                seen = f": none of {use.parameters} parameters had a gradient in any of {use.steps:,} steps"
                measured = Measured(steps=use.steps)
                yield from confirmed(
                    self, recording, rank, use.step_place, seen=seen, measured=measured, role="stepped"
                )

    def in_file(self, file: SourceFile) -> Findings:
        """A clear after the last backward and before the step that was to use its gradients."""
        for step in file.steps:
            for clear in step.of("zero_grad"):
                stepped = self._starved(file, step, clear)
                if stepped is not None:
                    yield self._finding(file, step, clear, stepped)

    def _starved(self, file: SourceFile, step: Step, clear: Effect) -> Effect | None:
        """The next step of the same optimizer, where nothing makes gradients for it in between."""
        if not isinstance(clear.event.node, ast.Call):
            return None
        stepped = next((e for e in step.of("step", "scaler_step") if self._uses(e, clear)), None)
        # With a closure the step makes its gradients itself.
        if stepped is None or (stepped.kind == "step" and stepped.event.call.args):
            return None
        if any(clear.order < e.order < stepped.order for e in step.of("backward")) or not clear.sure_with(stepped):
            return None
        hidden = loops.clears_by_hand(loops.units_of(step)) or loops.hides_between(file, clear, stepped)
        return stepped if self._waits(step, clear) and not hidden else None

    @staticmethod
    def _waits(step: Step, clear: Effect) -> bool:
        """Whether there are gradients at a clear that no step has used."""
        before = [e for e in step.of("backward", "step", "scaler_step") if e.order < clear.order]
        return [e.is_step for e in before if not e.excludes(clear)][-1:] == [False]

    @staticmethod
    def _uses(stepped: Effect, clear: Effect) -> bool:
        if stepped.order < clear.order or stepped.excludes(clear):
            return False
        node, where = loops.subject_of(clear), clear.event.unit
        cleared = identity(node, where)
        if cleared & loops.who(stepped):
            return True
        models = loops.models_of(loops.subject_of(stepped), stepped.event.unit)
        return bool(models and cleared & models)

    def _finding(self, file: SourceFile, step: Step, clear: Effect, stepped: Effect) -> Finding:
        last = [e for e in step.of("backward") if e.order < clear.order][-1]
        text, name = file.segment(clear.event.node), loops.name_of(stepped)
        message = f"{text} throws away the gradients that {name}.step() was to use"
        cause = "it stands after backward and before the step, so that the step finds no gradients and does nothing"
        advice = f"move `{text}` to after the step, or to before backward"
        change = self._edits(file, clear, stepped)
        related = [self.also(file, "stepped", stepped.event), self.also(file, "backward", last.event)]
        return self.suspect(file, clear.event, message, cause=cause, advice=advice, edits=change, related=related)

    @staticmethod
    def _edits(file: SourceFile, clear: Effect, stepped: Effect) -> Edits:
        """Move the line to right after the step, where both stand in one block: right for accumulation too."""
        one, other = clear.event, stepped.event
        same = one.unit is other.unit and one.loop is other.loop and one.context.arms == other.context.arms
        if not same or not isinstance(one.parent, ast.Expr) or one.context.withs != other.context.withs:
            return []
        return loops.moved_behind(file, one.statement, other.statement)
