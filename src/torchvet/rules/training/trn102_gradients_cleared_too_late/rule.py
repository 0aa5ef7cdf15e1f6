"""TRN102: gradients are cleared after backward, before the step that was to use them."""

from __future__ import annotations

import ast
import re

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.shared import empty_steps, seen_suspicions
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model import Loop, origins

_ENOUGH = 4
"""Steps before what never happened is a habit."""
_DROPS = 3
"""The same, for gradients that were cleared without a step."""
_PASSES = 10
_NOT_GRADIENTS = re.compile(
    r"zero_grad|no_grad|enable_grad|requires_grad|clip_grad\w*|grad\w*scaler|grad\w*_accum\w*", re.I
)


class GradientsClearedTooLate(loops.LoopRule):
    """Gradients are cleared after backward, before the step that was to use them."""

    severity = "error"
    words = ("zero_grad",)
    fix_changes_results = True

    silence_clears = False  # a run does not tell gradients that are zero from gradients that were cleared

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Optimizers that never had a gradient, where source shows what clears them before the step, or the run that
        they were there after backward; and steps that a scaler refused for that."""
        for use in rank.latest(records.optimizers.OptimizerUse, "id"):
            found = [*self._of_use(rank, recording, use)]
            yield from found
            if use.gradients_were_cleared and not found:
                yield self._thrown_away(rank, use)
        ended = empty_steps.refused_empty(rank)
        if ended is not None and ended.cleared is not None:
            yield self._refused(rank, ended, ended.cleared)

        # Steps that a scaler has left out were reached: AMP118 speaks of them.
        left_out = any(use.skipped for use in rank.all(records.scaling.ScalingUse))
        for never in rank.latest(records.optimizers.NeverStepped) if not left_out else ():
            if not never.steps and never.dropped >= _DROPS and never.passes >= _PASSES and not never.changed:
                yield from self._never(rank, recording, never)

    def _of_use(
        self, rank: kit.RankRecording, recording: kit.Recording, use: records.optimizers.OptimizerUse
    ) -> kit.Findings:
        if 0 < use.parameters == use.without_gradient_count and use.steps >= _ENOUGH:
            seen = f": none of {use.parameters} parameters had a gradient in any of {use.steps:,} steps"
            measured = kit.Measured(steps=use.steps)
            yield from seen_suspicions.confirmed(
                self, recording, rank, use.step_place, seen=seen, measured=measured, role="stepped"
            )
        elif use.dropped >= _DROPS:
            yield from self._seen_dropped(rank, recording, use)

    def _seen_dropped(
        self, rank: kit.RankRecording, recording: kit.Recording, use: records.optimizers.OptimizerUse
    ) -> kit.Findings:
        """Gradients of several backward calls were to be added up, and all but the last were cleared."""
        seen = f": {use.dropped} times in its first steps a backward's gradients were cleared without a step"
        measured = kit.Measured(steps=use.steps)
        for finding in seen_suspicions.confirmed(
            self, recording, rank, use.step_place, seen=seen, measured=measured, role="stepped"
        ):
            if any(r.role == "each turn" for r in finding.related):
                yield finding

    def _never(
        self, rank: kit.RankRecording, recording: kit.Recording, never: records.optimizers.NeverStepped
    ) -> kit.Findings:
        """Source has a step for the optimizer that no pass has reached."""
        path = never.backward.path if never.backward is not None else never.place.path
        file = recording.model(path)
        steps = [e for step in file.steps for e in step.effects if e.is_step] if file is not None else []
        lines = {e.line: e for e in steps}
        if not lines or never.backward is None:
            return
        at = kit.Location(path=path, line=min(lines), function=lines[min(lines)].event.unit.name)
        yield self.observed(
            rank,
            at if len(lines) == 1 else never.backward,
            f"{never.name} never stepped: in {never.passes} backward passes that were looked at, gradients of its "
            f"{never.parameters} parameters were cleared {never.dropped} times without having been used",
            cause="no pass came to the step before the gradients were cleared, and the weights have not changed",
            advice="look at the condition of the step: where it counts batches, an epoch may have fewer of them; step "
            "at the end of the epoch, too, or count on from epoch to epoch",
            severity="warning",
            measured=kit.Measured(steps=never.passes),
            related=[self.beside("backward", "gradients are made here", never.backward)],
        )

    def _thrown_away(self, rank: kit.RankRecording, use: records.optimizers.OptimizerUse) -> kit.Finding:
        message = f"{use.name}.step() changes nothing: in {use.thrown} checked steps it found no gradient"
        cause = (
            "gradients were there when backward returned, and were gone when the step began: they are cleared between"
        )
        advice = "clear the gradients after the step, or before backward"
        return self.observed(
            rank, use.step_place, message, cause=cause, advice=advice, measured=kit.Measured(steps=use.thrown)
        )

    def _refused(self, rank: kit.RankRecording, ended: records.scaling.EmptyStep, cleared: kit.Place) -> kit.Finding:
        return self.observed(
            rank,
            cleared,
            f"the program ended in scaler.step(): the gradients of {ended.optimizer} are cleared here, after backward "
            "and before the step",
            cause=f"torch refuses a step where none of the optimizer's {ended.parameters} parameters has a gradient",
            advice="clear the gradients after the step, or before backward",
            related=[self.beside("stepped", ended.place.function, ended.place)],
        )

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A clear after the last backward and before the step that was to use its gradients."""
        for step in file.steps:
            for clear in step.of("zero_grad"):
                stepped = self._starved(file, step, clear)
                if stepped is not None:
                    yield self._finding(file, step, clear, stepped)
                    continue
                stepped = self._uses_the_last(file, step, clear)
                if stepped is not None:
                    yield self._all_but_one(file, clear, stepped)

    def _uses_the_last(self, file: kit.SourceFile, step: kit.Step, clear: kit.Effect) -> kit.Effect | None:
        """The step behind an inner loop that makes gradients and clears them in each of its turns."""
        stepped = self._next_step(step, clear)
        made = [e for e in step.of("backward") if stepped is not None and clear.order < e.order < stepped.order]
        if stepped is None or not made or not all(clear.sure_with(e) for e in made):
            return None
        loop = self._inner_loop(clear, made, stepped)
        if loop is None or not self._plainly(file, step, loop) or self._hidden(file, step, clear, stepped):
            return None
        return stepped

    @staticmethod
    def _inner_loop(clear: kit.Effect, made: list[kit.Effect], stepped: kit.Effect) -> Loop | None:
        """The loop that clears and makes them, if the step is behind it: in the unit that has them all, else in that of
        the training step."""
        together = len({id(e.event.unit) for e in (clear, *made, stepped)}) == 1
        first, *passes, last = (e.event if together else e.at for e in (clear, *made, stepped))
        loop = first.loop
        inner = loop is not None and not last.inside(loop) and all(e.inside(loop) for e in passes)
        return loop if inner else None

    def _next_step(self, step: kit.Step, clear: kit.Effect) -> kit.Effect | None:
        """The next step of the optimizer whose gradients a call clears. With a closure it makes them itself."""
        if not isinstance(clear.event.node, ast.Call):
            return None
        stepped = next((e for e in step.of("step", "scaler_step") if self._uses(e, clear)), None)
        closure = stepped is not None and stepped.kind == "step" and stepped.event.call.args
        return None if closure else stepped

    @staticmethod
    def _plainly(file: kit.SourceFile, step: kit.Step, loop: Loop) -> bool:
        """Whether nothing in the loop reads the gradients, or leaves it early."""
        text = loops.loop_text(file, loop)
        reads = "grad" in _NOT_GRADIENTS.sub("", text) or "break" in text
        return not reads and not any(e.inside(loop) for e in step.opaque)

    @staticmethod
    def _hidden(file: kit.SourceFile, step: kit.Step, clear: kit.Effect, stepped: kit.Effect) -> bool:
        return loops.clears_by_hand(loops.units_of(step)) or loops.hides_between(file, clear, stepped)

    def _all_but_one(self, file: kit.SourceFile, clear: kit.Effect, stepped: kit.Effect) -> kit.Finding:
        text, name = file.segment(clear.event.node), loops.name_of(stepped)
        message = f"{text} clears the gradients in every turn of this loop: {name}.step() uses those of the last alone"
        cause = "the gradients of all other turns are made and thrown away"
        advice = f"move `{text}` to before the loop"
        related = [self.also(file, "stepped", stepped.event), self.also(file, "each turn", clear.event)]
        return self.suspect(file, clear.event, message, cause=cause, advice=advice, related=related)

    def _starved(self, file: kit.SourceFile, step: kit.Step, clear: kit.Effect) -> kit.Effect | None:
        """The next step of the same optimizer, where nothing makes gradients for it in between."""
        stepped = self._next_step(step, clear)
        if stepped is None:
            return None
        if any(clear.order < e.order < stepped.order for e in step.of("backward")) or not clear.sure_with(stepped):
            return None
        if self._leaves_out(step, clear, stepped):
            return None
        return stepped if self._waits(step, clear) and not self._hidden(file, step, clear, stepped) else None

    def _leaves_out(self, step: kit.Step, clear: kit.Effect, stepped: kit.Effect) -> bool:
        """Whether a condition after backward clears them, and another step uses them where it does not hold: then the
        update is left out on purpose."""
        made = [e for e in step.of("backward") if e.order < clear.order and e.event.unit is clear.event.unit]
        asked = [arm for arm in clear.event.context.arms if made and arm not in made[-1].event.context.arms]
        others = (e for e in step.of("step", "scaler_step") if e is not stepped and e.order > clear.order)
        same = (e for e in others if loops.who(e) & loops.who(stepped))
        return bool(asked) and any(arm not in e.event.context.arms for e in same for arm in asked)

    @staticmethod
    def _waits(step: kit.Step, clear: kit.Effect) -> bool:
        """Whether there are gradients at a clear that no step has used."""
        before = [e for e in step.of("backward", "step", "scaler_step") if e.order < clear.order]
        return [e.is_step for e in before if not e.excludes(clear)][-1:] == [False]

    @staticmethod
    def _uses(stepped: kit.Effect, clear: kit.Effect) -> bool:
        if stepped.order < clear.order or stepped.excludes(clear):
            return False
        node, where = loops.subject_of(clear), clear.event.unit
        cleared = origins.identity(node, where)
        if cleared & loops.who(stepped):
            return True
        models = loops.models_of(loops.subject_of(stepped), stepped.event.unit)
        return bool(models and cleared & models)

    def _finding(self, file: kit.SourceFile, step: kit.Step, clear: kit.Effect, stepped: kit.Effect) -> kit.Finding:
        last = [e for e in step.of("backward") if e.order < clear.order][-1]
        text, name = file.segment(clear.event.node), loops.name_of(stepped)
        message = f"{text} throws away the gradients that {name}.step() was to use"
        cause = "it stands after backward and before the step, so that the step finds no gradients and does nothing"
        advice = f"move `{text}` to after the step, or to before backward"
        change = self._edits(file, clear, stepped)
        related = [self.also(file, "stepped", stepped.event), self.also(file, "backward", last.event)]
        return self.suspect(file, clear.event, message, cause=cause, advice=advice, edits=change, related=related)

    @staticmethod
    def _edits(file: kit.SourceFile, clear: kit.Effect, stepped: kit.Effect) -> kit.Edits:
        """Move the line to right after the step, where both stand in one block: right for accumulation too."""
        one, other = clear.event, stepped.event
        same = one.unit is other.unit and one.loop is other.loop and one.context.arms == other.context.arms
        if not same or not isinstance(one.parent, ast.Expr) or one.context.withs != other.context.withs:
            return []
        return loops.moved_behind(file, one.statement, other.statement)
