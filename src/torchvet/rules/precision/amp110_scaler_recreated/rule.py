"""AMP110: a scaler is made anew every epoch, or every step, for an optimizer that goes on."""

from __future__ import annotations

import ast

from torchvet import formatting
from torchvet.rules.kit import Edit, Finding, Iterator, Measured, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.scalers import before_the_loop, handed_in, kept_on_self
from torchvet.source.model import Event, Loop, Unit, keyword


class ScalerRecreated(Rule):
    """A scaler is made anew every epoch, or every step, for an optimizer that goes on."""

    code = "AMP110"
    name = "scaler-recreated"
    summary = "A new gradient scaler is made every epoch, or every step, of one training run"
    severity = "warning"
    words = ("GradScaler",)

    fix_changes_results = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Scalers made anew at one place for one optimizer, graded by the steps that they lost to learn their scale."""
        for use in runs.uses(rank):
            if use.replaced < 2 and not use.relearned:
                continue
            never = use.steps < 2 * use.made
            yield self.observed(
                rank, severity="warning" if use.relearned > 1 or never else "info", place=use.place,
                message=f"{use.made:,} scalers were made here for one training run: the later ones left "
                f"{formatting.count(use.relearned, 'step')} out to find their scale again",
                cause=f"a new scaler begins at {use.initial or 0:,.0f}, whatever the last one had learned",
                advice="make the scaler once, where the optimizer is made",
                measured=Measured(steps=use.steps),
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A scaler made in a loop, or in a function that a loop calls, whose optimizer comes from outside of it."""
        for made in scaling.made_by(file):
            name = scaling.bound_to(made)
            direct = isinstance(made.statement, (ast.Assign, ast.AnnAssign)) and made.statement.value is made.node
            if not name or not direct or scaling.is_constant(keyword(made.call, "enabled"), False):
                continue
            loop = made.loop
            where = self._by_loop(file, made, name, loop) if loop is not None else self._by_call(file, made, name)
            if where:
                yield self._finding(file, made, name, where)

    @staticmethod
    def _by_loop(file: SourceFile, made: Event, name: str, loop: Loop) -> str:
        """How often: the loop that makes it trains with it, and does not make the optimizer."""
        for one in scaling.passes(file):
            for step in one.steps:
                inside = step.at.unit is made.unit and step.at.inside(loop)
                if step.through == name and inside and not _bound_within(made.unit, step.subject, loop):
                    return "step" if one.step.loop is loop else "epoch"
        return ""

    @staticmethod
    def _by_call(file: SourceFile, made: Event, name: str) -> str:
        """How often a function that makes it, and is given the optimizer, is called."""
        unit = made.unit
        trained = [s for one in scaling.passes(file) for s in one.steps if s.at.unit is unit and s.through == name]
        heads = {s.subject.partition(".")[0] for s in trained}
        if unit.is_module or not heads or not heads <= {*unit.parameters}:
            return ""
        callers = [c for c in file.callers(unit) if c.loop is not None and not c.loop.comprehension]
        if not file.callers(unit):
            return "call" if "epoch" in unit.name.lower() else ""
        for caller in callers:
            given = {n for a in (*caller.call.args, *(k.value for k in caller.call.keywords)) for n in _names(file, a)}
            if not any(
                _bound_within(caller.unit, n, loop) for n in given for loop in [caller.loop] if loop is not None
            ):
                return "call"
        return ""

    def _finding(self, file: SourceFile, made: Event, name: str, where: str) -> Finding:
        text = {
            "step": "at every step",
            "epoch": "every time around this loop",
            "call": f"each time {made.unit.name} is called",
        }
        return self.suspect(
            file, made, f"{name} is made anew {text[where]}: the loss scale that it has learned is lost",
            cause="a new scaler begins at 65,536 and leaves steps out until its scale no longer overflows",
            advice=f"make {name} once, where the optimizer is made"
            + (f", and hand it to {made.unit.name}" if where == "call" else ""),
            edits=self._made_once(file, made, name, where),
        )  # fmt: skip

    @staticmethod
    def _made_once(file: SourceFile, made: Event, name: str, where: str) -> list[Edit]:
        """The scaler made where its optimizer is, or before the loop that goes on with it."""
        if where != "call":
            return before_the_loop(file, made, made.loop) if made.loop is not None else []
        if made.unit.owner is None:
            return handed_in(file, made, name)
        steps = (s for one in scaling.passes(file) for s in one.steps)
        stepped = {s.subject for s in steps if s.at.unit is made.unit and s.through == name}
        return kept_on_self(file, made, name, stepped.pop()) if len(stepped) == 1 else []


def _names(file: SourceFile, node: object) -> list[str]:
    text = file.segment(node)  # type: ignore[arg-type]
    return [text.partition(".")[0]] if text.replace(".", "").isidentifier() else []


def _bound_within(unit: Unit, text: str, loop: Loop) -> bool:
    """Whether a name, or an attribute of it, is bound inside a loop."""
    head = text.partition(".")[0].partition("[")[0]
    bound = [b for b in unit.bindings.get(head, ()) if b.inside(loop)]
    if bound or "." not in text:
        return bool(bound)
    owner = unit.method_class()
    made = owner.attributes.get(text.partition(".")[2], []) if owner is not None else []
    return any(event.unit is unit and event.inside(loop) for event, _ in made)
