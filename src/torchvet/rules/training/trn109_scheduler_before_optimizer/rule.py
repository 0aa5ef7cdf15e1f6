"""TRN109: the learning rate scheduler steps before the optimizer does."""

from __future__ import annotations

import ast
import re

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.seen_suspicions import confirmed
from torchvet.source.model import Unit, argument, given, origins, receiver

_BY_METRIC = ("ReduceLROnPlateau", "LRScheduler")
_CAUSE = "the scheduler moves on before the optimizer has used the first value of the schedule"


class SchedulerBeforeOptimizer(loops.LoopRule):
    """The learning rate scheduler steps before the optimizer does."""

    severity = "warning"
    words = ("sched", "LR", "backward")
    fix_changes_results = True

    silence_clears = False  # what comes after the steps that were run may show it yet

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Schedulers that were seen to step first, where source shows whose optimizer follows; else where the run has
        shown it, and no scaler may have skipped the optimizer's step."""
        scaled = any(True for _ in rank.all(records.scaling.ScalingUse))
        for record in rank.latest(records.training.EarlySchedule):
            seen = f" ({record.name} in its first step)"
            found = [*confirmed(self, recording, rank, record.place, seen=seen, measured=kit.Measured(steps=1))]
            yield from found
            if not found and record.alone and not scaled and record.name not in _BY_METRIC:
                yield self._ran_first(rank, record)

    def _ran_first(self, rank: kit.RankRecording, record: records.training.EarlySchedule) -> kit.Finding:
        message = f"{record.name} steps before {record.optimizer} does: the first rate is skipped"
        advice = "step the scheduler after the optimizer has stepped, at the end of the loop"
        return self.observed(rank, record.place, message, cause=_CAUSE, advice=advice, measured=kit.Measured(steps=1))

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A scheduler that is stepped in a loop before the first optimizer step in it."""
        for unit in {id(s.unit): s.unit for s in file.steps}.values():
            effects = file.effects(unit)
            for early in (e for e in effects if e.kind == "scheduler"):
                stepped = self._step_after(file, early, effects)
                if stepped is not None:
                    yield self._finding(file, early, stepped)

    @staticmethod
    def _step_after(file: kit.SourceFile, early: kit.Effect, effects: list[kit.Effect]) -> kit.Effect | None:
        """The optimizer step that should have come first; None where all is well or not sure."""
        loop = early.at.loop
        mine = _optimizers_of(file, early) if loop is not None else frozenset()
        steps = [e for e in effects if e.is_step and loops.who(e) & mine]
        if not steps or steps[0].order < early.order or any(e.at.loop is None for e in steps):
            return None
        # `if epoch > 0: scheduler.step()` at the top is the right order.
        first = next((e for e in steps if e.at.inside(loop)), None)
        return first if first is not None and early.sure_with(first) else None

    def _finding(self, file: kit.SourceFile, early: kit.Effect, stepped: kit.Effect) -> kit.Finding:
        scheduler, optimizer = loops.name_of(early), loops.name_of(stepped)
        message = f"{scheduler}.step() comes before {optimizer}.step(): the first rate is skipped"
        advice = f"call `{scheduler}.step()` after the optimizer has stepped: at the end of the loop"
        change = self._edits(file, early, stepped)
        related = [self.also(file, "stepped", stepped.event)]
        return self.suspect(file, early.event, message, cause=_CAUSE, advice=advice, edits=change, related=related)

    @staticmethod
    def _edits(file: kit.SourceFile, early: kit.Effect, stepped: kit.Effect) -> kit.Edits:
        """Move the line to the end of the loop's body, unless something there leaves a pass early; in a function that
        is one step to right after the optimizer's."""
        event, other = early.event, stepped.event
        loop = event.loop
        if loop is None and other.unit is event.unit and event.context.arms == other.context.arms == ():
            return loops.moved_behind(file, event.statement, other.statement) if other.loop is None else []
        if loop is None or early.at is not event or not isinstance(loop.node, (ast.For, ast.While)):
            return []
        if event.statement not in loop.node.body or re.search(r"\bcontinue\b", loops.loop_text(file, loop)):
            return []
        return loops.moved_behind(file, event.statement, loop.node.body[-1])


def _optimizers_of(file: kit.SourceFile, early: kit.Effect) -> kit.Identity:
    """The optimizers of a scheduler that is stepped without arguments; empty where another kind may be meant."""
    made = loops.constructors(receiver(early.event.call), early.event.unit)
    if made is None or given(early.event.call) or not all(_steps_by_itself(file, c, where) for c, where in made):
        return frozenset()
    return frozenset[tuple[object, ...]]().union(
        *(origins.identity(argument(c, "optimizer", 0), where) for c, where in made)
    )


def _steps_by_itself(file: kit.SourceFile, call: ast.Call, unit: Unit) -> bool:
    """A scheduler of torch or transformers that is stepped without arguments; the file's own, if it leaves `step` to
    torch's class."""
    known, dotted = file.roles.class_named(call.func, unit), file.dotted(call.func)
    if known is not None and any(base.startswith("torch.optim.lr_scheduler.") for base in known.ancestors):
        return known.method("step") is None
    ours = dotted.startswith(("torch.optim.lr_scheduler.", "transformers."))
    return ours and not dotted.endswith(".ReduceLROnPlateau")
