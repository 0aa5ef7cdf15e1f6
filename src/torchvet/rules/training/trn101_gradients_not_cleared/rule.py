"""TRN101: the optimizer steps on gradients that were never cleared."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from torchvet.recording.records.training import OptimizerUse
from torchvet.rules.kit import (
    Edit,
    Effect,
    Finding,
    Measured,
    RankRecording,
    Recording,
    Rule,
    SourceFile,
    Step,
    calls_at,
)
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model import Event, edits, receiver
from torchvet.source.model.origins import identity

_UNCALLED = re.compile(r"\s*[\w.]+\.zero_grad\s*(#.*)?$")
"""`optimizer.zero_grad` without the brackets does nothing."""


class GradientsNotCleared(Rule):
    """The optimizer steps on gradients that were never cleared."""

    code = "TRN101"
    name = "gradients-not-cleared"
    summary = "The optimizer steps on gradients that were never cleared"
    severity = "error"
    words = ("backward",)
    once_a_place = False

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: an optimizer whose steps were looked at."""
        uses = [use for rank in recording.ranks for use in rank.all(OptimizerUse)]
        return super().could_be_measured(recording) and any(use.checked >= 3 for use in uses)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Optimizers none of whose checked steps started from cleared gradients."""
        for use in rank.latest(OptimizerUse, "id"):
            if use.checked >= 3 and use.uncleared == use.checked:
                yield self.observed(
                    rank, severity="error", place=use.step_place,
                    message=f"{use.name} steps on the sum of all gradients so far: none of "
                    f"{use.checked} checked steps "
                    "began with cleared gradients",
                    cause="backward adds to `.grad`, and nothing sets it to zero or None between the steps",
                    advice="call `optimizer.zero_grad()` once per step, before backward or after `step()`",
                    measured=Measured(steps=use.checked),
                )  # fmt: skip

    fix_may_change_losses = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Clear them between the steps."""
        for stepped, on in calls_at(file, finding, "step"):
            return _cleared(file, stepped, on)
        return ()

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Loops with a backward and a step whose optimizer nothing clears."""
        if file.mentions("register_post_accumulate_grad_hook", "optimizer_in_backward"):
            return
        seen: set[int] = set()
        for step in file.steps:
            for stepped in step.of("step", "scaler_step"):
                if id(stepped.event) in seen or not self._is_uncleared(file, step, stepped):
                    continue
                seen.add(id(stepped.event))
                yield self._suspected(file, step, stepped)

    def _is_uncleared(self, file: SourceFile, step: Step, stepped: Effect) -> bool:
        if (
            not self._repeats(step)
            or (stepped.kind == "step" and stepped.event.call.args)
            or stepped.through in (stepped.subject,)
        ):
            return False
        if not any(self._adds(file, e) and not e.excludes(stepped) for e in step.of("backward")):
            return False
        clears = step.of("zero_grad")
        if any(e.subject == stepped.subject for e in clears):
            return False
        if clears and not self._are_others(file, clears, stepped):
            return False
        return not (
            self._cleared_out_of_sight(step) or loops.clears_by_hand(loops.units_of(step))
            or loops.may_do_more(file, step) or self._is_wrapper(file, stepped) or self._is_of_the_turn(step, stepped)
        )  # fmt: skip

    @staticmethod
    def _repeats(step: Step) -> bool:
        """Whether it is a loop that runs more than a few times."""
        if step.loop is None:
            return False
        over = getattr(step.loop.node, "iter", None)
        return not (isinstance(over, ast.Call) and re.fullmatch(r"range\([0-3]\)", ast.unparse(over)))

    @staticmethod
    def _adds(file: SourceFile, backward: Effect) -> bool:
        """A backward that adds to `.grad`, as neither DeepSpeed's nor `torch.distributed.autograd`'s need do."""
        node = backward.event.node
        if not isinstance(node, ast.Call):
            return False
        if not node.args:
            return not any(k.arg == "inputs" for k in node.keywords)
        on = receiver(node)
        return on is not None and "accelerator" in file.roles.of(on, backward.event.unit)

    @staticmethod
    def _are_others(file: SourceFile, clears: list[Effect], stepped: Effect) -> bool:
        """Whether what is cleared is known to be other optimizers' parameters only."""
        subject = loops.subject_of(stepped)
        unit = stepped.event.unit
        own, mine = identity(subject, unit), loops.models_of(subject, unit)
        if mine is None:
            return False
        wholes = loops.wholes_of(subject, unit)
        for clear in clears:
            node, where = loops.subject_of(clear), clear.event.unit
            if node is None or clear.subject in ("", "*") or identity(node, where) & own:
                return False
            others, parts = loops.models_of(node, where), loops.wholes_of(node, where)
            made = loops.constructors(node, where) if others is None else None
            if made is not None and "module" in file.roles.of(node, where):
                others, parts = identity(node, where), loops.bases_of(node, where)
                for call, home in made:
                    for given in (*call.args, *(k.value for k in call.keywords)):
                        others |= identity(given, home)
            if (
                others is None
                or others & (mine | wholes)
                or parts & mine
                or stepped.subject.startswith(clear.subject + ".")
            ):
                return False
        return True

    @staticmethod
    def _cleared_out_of_sight(step: Step) -> bool:
        """A `zero_grad` in the text of these units that is no effect of theirs: in a nested function or a hook."""
        file = step.unit.file
        known = {e.line for e in file.effects(step.unit) if e.kind == "zero_grad"}
        units = loops.units_of(step)
        spans = [(u.first, u.last) for u in units if not u.is_module]
        return any(
            line not in known
            and any(a <= line <= b for a, b in spans or [(1, 10**9)])
            and not _UNCALLED.match(file.lines[line - 1])
            for line in file.lines_with("zero_grad")
        )

    @staticmethod
    def _is_wrapper(file: SourceFile, stepped: Effect) -> bool:
        """An optimizer of a class from elsewhere, whose `step` may clear."""
        made = loops.constructors(loops.subject_of(stepped), stepped.event.unit) or []
        for call, where in made:
            known = file.roles.class_named(call.func, where)
            if known is not None and "zero_grad" in loops.text_between(
                file, known.node.lineno, known.node.end_lineno or 0
            ):
                return True
            name = file.dotted(call.func).rpartition(".")[2]
            if known is None and name[:1].isupper() and "optimizer" not in file.roles.of(call, where):
                return True
        return False

    @staticmethod
    def _is_of_the_turn(step: Step, stepped: Effect) -> bool:
        """An optimizer that each turn of the loop makes for a tensor that the turn makes too: no gradient is there."""
        bindings = step.unit.bindings
        for call, where in loops.constructors(loops.subject_of(stepped), stepped.event.unit) or []:
            given = call.args[0] if call.args and where is step.unit else None
            listed = given.elts if isinstance(given, (ast.List, ast.Tuple)) else []
            names = [one.id for one in listed if isinstance(one, ast.Name)]
            if names and len(names) == len(listed) and all(
                bindings.get(name) and all(b.inside(step.loop) for b in bindings[name]) for name in names
            ):  # fmt: skip
                return True
        return False

    def _suspected(self, file: SourceFile, step: Step, stepped: Effect) -> Finding:
        backward = next(e for e in step.of("backward") if not e.excludes(stepped))
        name = loops.name_of(stepped)
        return self.suspect(
            file, backward.event, f"{name} steps on the sum of all gradients so far: nothing clears them in this loop",
            cause="backward adds to `.grad`, and nothing sets it to zero or None between the steps",
            advice=f"call `{name}.zero_grad()` once per step, before backward or after `step()`",
            severity="info" if loops.is_test(file) else None, edits=self._edits(file, stepped),
            related=[self.also(file, "stepped", stepped.event, file.segment(stepped.event.node))],
        )  # fmt: skip

    @staticmethod
    def _edits(file: SourceFile, stepped: Effect) -> list[Edit]:
        subject = loops.subject_of(stepped)
        if subject is None or not isinstance(stepped.event.parent, ast.Expr):
            return []
        return _cleared(file, stepped.event, subject)


def _cleared(file: SourceFile, stepped: Event, optimizer: ast.expr) -> list[Edit]:
    """Clear right after the step, which is right for accumulation too; but before its own backward where that is
    plain to see and another adds to the same gradients, as a generator's goes through the discriminator."""
    clear = f"{file.segment(optimizer)}.zero_grad()"
    unit = stepped.unit
    earlier = [e for e in unit.calls.get("step", ()) if e.index < stepped.index]
    since = earlier[-1].index if earlier else -1
    backwards = [*file.calls("backward", "manual_backward")]
    own = [e for e in backwards if e.unit is unit and since < e.index < stepped.index]
    together = all(e.loop is stepped.loop and e.context.arms == stepped.context.arms for e in own)
    if own and together and len(own) < len(backwards):
        return edits.before(file, own[0].statement, clear)
    return edits.after(file, stepped.statement, clear)
