"""AMP110: a scaler is made anew every epoch, or every step, for an optimizer that goes on."""

from __future__ import annotations

import ast

from torchvet import formatting
from torchvet.rules.kit import Edit, Finding, Iterator, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule
from torchvet.rules.precision.fixes.scalers import before_the_loop, handed_in, kept_on_self
from torchvet.source.model import Event, Loop, Unit, given, is_set

_OFTEN = {
    "step": "at every step",
    "epoch": "every time around this loop",
    "call": "each time {} is called",
}


class ScalerRecreated(ScalerRule):
    """A new gradient scaler is made every epoch, or every step, of one training run."""

    severity = "warning"
    words = ("GradScaler",)
    fix_changes_results = True

    def of_use(self, use: records.scaling.ScalingUse) -> Report | None:
        """Scalers made anew at one place for one optimizer, graded by the steps that they lost to learn their scale."""
        if use.replaced < 2 and not use.relearned:
            return None
        # Scalers that make one step each never come to learn a scale, with or without a skip.
        never = use.steps < 2 * use.made
        return Report(
            f"{use.made:,} scalers were made here for one training run: the later ones left "
            f"{formatting.count(use.relearned, 'step')} out to find their scale again",
            cause=f"a new scaler begins at {use.initial or 0:,.0f}, whatever the last one had learned",
            advice="make the scaler once, where the optimizer is made",
            severity="warning" if use.relearned > 1 or never else "info",
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A scaler made in a loop, or in a function that a loop calls, whose optimizer comes from outside of it."""
        for made in scaling.named_scalers(file):
            direct = isinstance(made.statement, (ast.Assign, ast.AnnAssign)) and made.statement.value is made.node
            if direct and not is_set(made.call, "enabled", False):
                where = _by_loop(file, made, made.loop) if made.loop is not None else _by_call(file, made)
                if where:
                    yield self._finding(file, made, where)

    def _finding(self, file: SourceFile, made: Event, where: str) -> Finding:
        name, function = scaling.bound_to(made), made.unit.name
        return self.suspect_at(
            made,
            f"{name} is made anew {_OFTEN[where].format(function)}: the loss scale that it has learned is lost",
            cause="a new scaler begins at 65,536 and leaves steps out until its scale no longer overflows",
            advice=f"make {name} once, where the optimizer is made"
            + (f", and hand it to {function}" if where == "call" else ""),
            edits=_made_once(file, made, name, where),
        )


def _by_loop(file: SourceFile, made: Event, loop: Loop) -> str:
    """How often: the loop that makes it trains with it, and does not make the optimizer."""
    for one in scaling.scaled_passes(file):
        for step in one.steps:
            # A loop that makes the optimizer as well is a loop over trainings.
            mine = step.through == scaling.bound_to(made) and step.at.unit is made.unit and step.at.inside(loop)
            if mine and not _bound_within(made.unit, step.subject, loop):
                return "step" if one.loop is loop else "epoch"
    return ""


def _by_call(file: SourceFile, made: Event) -> str:
    """How often a function that makes it, and is given the optimizer, is called."""
    unit, callers = made.unit, file.callers(made.unit)
    heads = {subject.partition(".")[0] for subject in _stepped(file, made)}
    if unit.is_module or not heads or not heads <= {*unit.parameters}:
        return ""
    if not callers:
        return "call" if "epoch" in unit.name.lower() else ""
    return "call" if any(_goes_on(file, caller) for caller in callers) else ""


def _stepped(file: SourceFile, made: Event) -> set[str]:
    """What is stepped through a scaler in the function that makes it."""
    steps = scaling.scaler_steps(file)
    return {s.subject for s in steps if s.at.unit is made.unit and s.through == scaling.bound_to(made)}


def _goes_on(file: SourceFile, caller: Event) -> bool:
    """Whether a call in a loop is given nothing that the loop makes."""
    loop = caller.loop
    if loop is None or loop.comprehension:
        return False
    texts = (file.segment(a) for a in given(caller.call))
    names = [text.partition(".")[0] for text in texts if text.replace(".", "").isidentifier()]
    return not any(_bound_within(caller.unit, name, loop) for name in names)


def _made_once(file: SourceFile, made: Event, name: str, where: str) -> list[Edit]:
    """The scaler made where its optimizer is, or before the loop that goes on with it."""
    if where != "call":
        return before_the_loop(file, made, made.loop) if made.loop is not None else []
    if made.unit.owner is None:
        return handed_in(file, made, name)
    stepped = _stepped(file, made)
    return kept_on_self(file, made, name, stepped.pop()) if len(stepped) == 1 else []


def _bound_within(unit: Unit, text: str, loop: Loop) -> bool:
    """Whether a name, or an attribute of it, is bound inside a loop."""
    head = text.partition(".")[0].partition("[")[0]
    bound = any(b.inside(loop) for b in unit.bindings.get(head, ()))
    if bound or "." not in text:
        return bound
    owner = unit.method_class()
    made = owner.attributes.get(text.partition(".")[2], []) if owner is not None else []
    return any(event.unit is unit and event.inside(loop) for event, _ in made)
