"""TRN101: the optimizer steps on gradients that were never cleared."""

from __future__ import annotations

import ast
import re
from itertools import chain

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.training._single_steps import Uncleared, uncleared_steps
from torchvet.source.model import Event, edits, given, origins, receiver

_CAUSE = "backward adds to `.grad`, and nothing sets it to zero or None between the steps"
_ENOUGH = 3
"""Checked steps that tell a habit from an accumulation that is only beginning."""
_MOSTLY = 0.5
"""The share of them from which on gradients are cleared too seldom. Chosen, not measured."""
_UNCALLED = re.compile(r"\s*[\w.]+\.zero_grad\s*(#.*)?$")
"""`optimizer.zero_grad` without the brackets does nothing."""


class GradientsNotCleared(loops.LoopRule):
    """The optimizer steps on gradients that were never cleared."""

    severity = "error"
    words = ("backward",)
    fix_may_change_losses = True
    once_a_place = False  # one backward may be where the gradients of two optimizers come from

    def could_be_measured(self, recording: kit.Recording) -> bool:
        """Needed: an optimizer whose steps were checked."""
        uses = [use for rank in recording.ranks for use in rank.all(records.optimizers.OptimizerUse)]
        return super().could_be_measured(recording) and any(use.checked >= _ENOUGH for use in uses)

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Optimizers whose checked steps did not start from cleared gradients: none of them, or only a few."""
        for use in rank.latest(records.optimizers.OptimizerUse, "id"):
            always = use.uncleared == use.checked
            if use.uncleared >= _ENOUGH and (always or use.uncleared >= _MOSTLY * use.checked):
                began = "none of {} checked steps began" if always else "{} of {} checked steps did not begin"
                counted = (use.checked,) if always else (use.uncleared, use.checked)
                summed = "the sum of all gradients so far" if always else "sums of the gradients of many steps"
                message = f"{use.name} steps on {summed}: {began.format(*counted)} with cleared gradients"
                advice = (
                    "clear this optimizer's gradients once per step, right before the first backward of its own loss"
                )
                measured = kit.Measured(steps=use.checked)
                cause = _CAUSE if always else f"{_CAUSE}, except now and then, as at the start of an epoch"
                yield self.observed(rank, use.step_place, message, cause=cause, advice=advice, measured=measured)

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """Clear them between the steps."""
        for stepped, on in kit.calls_at(file, finding, "step"):
            return _cleared(file, stepped, on)
        return ()

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """Loops with a backward and a step whose optimizer nothing clears."""
        if file.mentions("register_post_accumulate_grad_hook", "optimizer_in_backward"):
            return
        for step in file.steps:
            for stepped in step.of("step", "scaler_step"):
                if self._is_uncleared(file, step, stepped):
                    yield self._suspected(file, step, stepped)
        for one in uncleared_steps(file):
            yield self._of_one_step(file, one)

    def _of_one_step(self, file: kit.SourceFile, one: Uncleared) -> kit.Finding:
        """A function that is one step, or an update by hand: a caller in another file may clear, a loop has none."""
        on = one.model if one.model is not None else receiver(one.update.call)
        name = file.segment(on) if on is not None else "the optimizer"
        where = "this loop" if one.loop is not None else one.unit.name
        does = f"{name} steps" if one.model is None else f"the parameters of {name} are changed"
        unless = "" if one.loop is not None else ", unless a caller elsewhere does"
        message = f"{does} by the sum of all gradients so far: neither {where} nor the rest of this file clears them"
        related = [self.also(file, "stepped", one.update)]
        if one.loop is None:
            place = kit.Related(role="step", message=f"def {one.unit.name}", path=file.path, line=one.unit.first)
            related = [place, *related]
        around = one.update.loop.node if one.model is not None and one.update.loop is not None else None
        after = around if isinstance(around, ast.stmt) else one.update.statement
        return self.suspect(
            file,
            one.backward,
            message + unless,
            cause=_CAUSE,
            advice=f"call `{name}.zero_grad()` once per step, before the backward",
            severity="info" if one.loop is None else None,
            edits=edits.after(file, after, f"{name}.zero_grad()"),
            related=related,
        )

    def _is_uncleared(self, file: kit.SourceFile, step: kit.Step, stepped: kit.Effect) -> bool:
        if not self._repeats(step) or self._may_clear(stepped):
            return False
        if not any(self._adds(file, e) and not e.excludes(stepped) for e in step.of("backward")):
            return False
        clears = step.of("zero_grad")
        if any(e.subject == stepped.subject for e in clears):
            return False
        # What is cleared under another name may be the same parameters, as those of the model itself.
        if clears and not self._are_others(file, clears, stepped):
            return False
        hidden = self._cleared_out_of_sight(step) or loops.clears_by_hand(loops.units_of(step))
        hidden = hidden or loops.may_do_more(file, step)
        return not (hidden or self._is_wrapper(file, stepped) or self._is_of_the_turn(step, stepped))

    @staticmethod
    def _may_clear(stepped: kit.Effect) -> bool:
        """Whether a step may clear gradients itself: through its closure, or as an engine such as DeepSpeed's."""
        closure = stepped.kind == "step" and bool(stepped.event.call.args)
        return closure or stepped.through == stepped.subject

    @staticmethod
    def _repeats(step: kit.Step) -> bool:
        """Whether it is a loop that runs more than a few times."""
        if step.loop is None:
            return False
        over = getattr(step.loop.node, "iter", None)
        return not (isinstance(over, ast.Call) and re.fullmatch(r"range\([0-3]\)", ast.unparse(over)))

    @staticmethod
    def _adds(file: kit.SourceFile, backward: kit.Effect) -> bool:
        """A backward that adds to `.grad`, as neither DeepSpeed's nor `torch.distributed.autograd`'s need do."""
        node = backward.event.node
        if not isinstance(node, ast.Call):
            return False
        if not node.args:
            return not any(k.arg == "inputs" for k in node.keywords)
        on = receiver(node)
        return on is not None and "accelerator" in file.roles.of(on, backward.event.unit)

    @classmethod
    def _are_others(cls, file: kit.SourceFile, clears: list[kit.Effect], stepped: kit.Effect) -> bool:
        """Whether what is cleared is known to be other optimizers' parameters only."""
        subject, unit = loops.subject_of(stepped), stepped.event.unit
        own, mine = origins.identity(subject, unit), loops.models_of(subject, unit)
        if mine is None:
            return False
        # To clear a model also clears its parts, and to clear a part may be to clear what is stepped.
        whole = mine | loops.wholes_of(subject, unit)
        for clear in clears:
            node = loops.subject_of(clear)
            if node is None or clear.subject in ("", "*") or origins.identity(node, clear.event.unit) & own:
                return False
            others, parts = cls._cleared_by(file, node, clear)
            if others is None or others & whole or parts & mine or stepped.subject.startswith(clear.subject + "."):
                return False
        return True

    @staticmethod
    def _cleared_by(
        file: kit.SourceFile, node: ast.expr, clear: kit.Effect
    ) -> tuple[kit.Identity | None, kit.Identity]:
        """The models whose gradients a `zero_grad` clears, None where they are not known, and what these are parts of.
        A model may be cleared itself, with those that it was made of."""
        where = clear.event.unit
        others, parts = loops.models_of(node, where), loops.wholes_of(node, where)
        made = loops.constructors(node, where) if others is None else None
        if made is not None and "module" in file.roles.of(node, where):
            within = chain.from_iterable(origins.identity(one, home) for call, home in made for one in given(call))
            return origins.identity(node, where).union(within), loops.bases_of(node, where)
        return others, parts

    @staticmethod
    def _cleared_out_of_sight(step: kit.Step) -> bool:
        """A `zero_grad` in the text of these units that is no effect of theirs: in a nested function or a hook."""
        file = step.unit.file
        known = {e.line for e in file.effects(step.unit) if e.kind == "zero_grad"}
        # Nested functions and lambdas are units of their own, without effects of the step: their text is read.
        units = loops.units_of(step)
        spans = [(u.first, u.last) for u in units if not u.is_module]
        return any(
            line not in known
            and any(a <= line <= b for a, b in spans or [(1, 10**9)])
            and not _UNCALLED.match(file.lines[line - 1])
            for line in file.lines_with("zero_grad")
        )

    @staticmethod
    def _is_wrapper(file: kit.SourceFile, stepped: kit.Effect) -> bool:
        """An optimizer of a class from elsewhere, whose `step` may clear."""
        made = loops.constructors(loops.subject_of(stepped), stepped.event.unit) or []
        for call, where in made:
            known = file.roles.class_named(call.func, where)
            if known is not None and "zero_grad" in file.text_of(known):
                return True
            name = file.dotted(call.func).rpartition(".")[2]
            if known is None and name[:1].isupper() and "optimizer" not in file.roles.of(call, where):
                return True
        return False

    @staticmethod
    def _is_of_the_turn(step: kit.Step, stepped: kit.Effect) -> bool:
        """An optimizer of what each turn of the loop makes anew: no gradient is there."""
        for call, where in loops.constructors(loops.subject_of(stepped), stepped.event.unit) or []:
            first = call.args[0] if call.args else None
            if first is None:
                continue
            learned = first.elts if isinstance(first, (ast.List, ast.Tuple)) else origins.models_in(first)
            if learned and all(loops.made_anew(one, where, step, stepped.at) for one in learned):
                return True
        return False

    def _suspected(self, file: kit.SourceFile, step: kit.Step, stepped: kit.Effect) -> kit.Finding:
        backward = next(e for e in step.of("backward") if not e.excludes(stepped))
        name = loops.name_of(stepped)
        message = f"{name} steps on the sum of all gradients so far: nothing clears them in this loop"
        advice = f"call `{name}.zero_grad()` once per step, right before the first backward of its own loss"
        change = self._edits(file, stepped)
        related = [self.also(file, "stepped", stepped.event)]
        return self.suspect(file, backward.event, message, cause=_CAUSE, advice=advice, edits=change, related=related)

    @staticmethod
    def _edits(file: kit.SourceFile, stepped: kit.Effect) -> kit.Edits:
        subject = loops.subject_of(stepped)
        if subject is None or not isinstance(stepped.event.parent, ast.Expr):
            return []
        return _cleared(file, stepped.event, subject)


def _cleared(file: kit.SourceFile, stepped: Event, optimizer: ast.expr) -> kit.Edits:
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
