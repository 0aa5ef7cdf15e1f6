"""NUM110: a formula that overflows or underflows where torch has a stable one."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Finding, Iterator, Recording, Sequence, Severity, SourceFile
from torchvet.rules.numerics import _formulas, _runs
from torchvet.rules.numerics import _nonfinite_words as say
from torchvet.rules.numerics._zero_logs import of_zeros
from torchvet.rules.numerics.fixes.guards import guarded
from torchvet.source.model import Event, Unit, edits, target_names

_BY_ITSELF = ("root-gradient-at-zero", "norm-gradient-at-zero", "single-sample")
"""Reasons that an operator gives by itself, whatever is around it."""
_NAMED_ABOVE = 3
"""Lines from an exp that is named to the formula that it is a part of, at most."""
_IN_FORMULAS = ("log-of-zero", "log-of-negative", "overflow", "zero-by-zero", "inf-minus-inf", "division-by-zero")
"""Reasons that source names the formula for."""


class UnstableFormula(_runs.NumberRule):
    """A formula that overflows or underflows where torch has a stable one."""

    severity = "warning"
    specialises = "NUM101"
    reasons = (*_BY_ITSELF, *_IN_FORMULAS)
    words = ("log", "exp", "sqrt")
    fix_changes_results = True
    fix_keeps_finite = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Keep the operand of a root, a logarithm or a division away from zero."""
        return guarded(file, finding)

    def failed(self, failure: _runs.Failure, recording: Recording) -> Iterator[Finding]:
        """A failed operator that stands in such a formula, or that has a stable twin by itself."""
        found = _in_formula(failure, recording) if failure.record.reason not in _BY_ITSELF else None
        if found is None and failure.record.reason not in _BY_ITSELF:
            return
        worst, held = max(failure.record.operands, key=lambda o: o.largest, default=None), ""
        worst = failure.record.argument or worst
        if worst is not None and failure.record.exact:
            zeros = f", {worst.zeros:,} of them 0" if worst.zeros else ""
            held = f" on {worst.dtype} values up to {_runs.figure(worst.largest)}{zeros}"
        message = f"{failure.operator}{held} gave {say.what(failure.record)}"
        yield self.in_step(failure, message, *((found.cause, found.advice) if found is not None else ()))

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """The formulas, written in one expression or over a name in between."""
        for found in (*_formulas.all_in(file), *of_zeros(file)) if file.imports.uses("torch") else ():
            event, form = found.event, found.form
            off = "no" in (file.gradients.enabled(event), file.gradients.carries(found.node, event))
            if off and form.only_gradient:
                continue
            severity: Severity = "warning" if form.grave and not off and not _is_cared_for(file, event) else "info"
            yield self.suspect(
                file,
                event,
                f"{file.segment(found.node)}: {found.harm}",
                cause=form.cause,
                advice=form.advice,
                severity=severity,
                node=found.node,
                # Not safe: where the formula held, the last bits differ.
                edits=[edits.replace(file, found.node, found.twin)] if found.twin else (),
            )


def _is_cared_for(file: SourceFile, event: Event) -> bool:
    return _is_asserted(file, event.unit) or _is_replaced(file, event)


def _is_asserted(file: SourceFile, unit: Unit) -> bool:
    """Whether a test computes it of its own numbers and asserts the result: it fails where they are not finite."""
    return unit.name.startswith("test") and "assert" in file.text_of(unit)


_GIVES_ANOTHER = re.compile(r"where\(|masked_fill|\] *=[^=]")


def _is_replaced(file: SourceFile, event: Event) -> bool:
    """Whether the function puts another value where its result is not finite."""
    lines = [line for line in file.text_of(event.unit).splitlines() if _GIVES_ANOTHER.search(line)]
    return any(
        re.search(
            rf"\b{name} *== *-?(float\(.-?inf|\w+\.inf)|\bis(inf|finite)\({name}\b|\b{name}\.is(inf|finite)\(", one
        )
        for name in target_names(event.statement)
        for one in lines
    )


def _in_formula(failure: _runs.Failure, recording: Recording) -> _formulas.Form | None:
    """The unstable formula of the user's source that a failed line belongs to."""
    at = failure.record.place
    file = recording.model(at.path) if at is not None else None
    if at is None or file is None:
        return None
    formulas = [one for one in _formulas.all_in(file) if one.form.grave]
    if _another_call(file, at.line, failure.operator, formulas):
        return None
    for one in formulas:
        # The exp of a quotient or of a logarithm may stand a few lines above, under a name.
        above = failure.operator == "exp" and at.line >= one.event.unit.first
        first = one.node.lineno - (_NAMED_ABOVE if above else 0)
        if first <= at.line <= (one.node.end_lineno or one.node.lineno):
            return one.form
    return None


def _another_call(file: SourceFile, line: int, name: str, formulas: list[_formulas.Formula]) -> bool:
    """Whether the line calls the operator outside of all formulas too: then it may have been that call."""
    known = {id(node) for one in formulas for node in ast.walk(one.node)}
    return any(id(event.call) not in known for event in file.calls_on(line, name))
