"""NUM110: a formula that overflows or underflows where torch has a stable one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Finding, Iterator, Measured, RankRecording, Recording, Rule, Sequence, Severity
from torchvet.rules.numerics import _formulas, _runs
from torchvet.rules.numerics import _nonfinite_words as say
from torchvet.rules.numerics.fixes.guards import guarded
from torchvet.source.model import SourceFile, edits

if TYPE_CHECKING:
    from torchvet.recording.records.nonfinite import NonFinite

_TWINS = {
    "root-gradient-at-zero": (
        "the gradient of a root at 0 is infinite, and times an inner gradient of 0 it is NaN",
        "use torch.linalg.vector_norm, or add eps below the root",
    ),
    "norm-gradient-at-zero": (
        "the gradient of this norm at 0 is not defined",
        "leave rows of zeros out, or add eps before the norm is taken",
    ),
    "single-sample": (
        "the variance of one value divides by 0",
        "use `correction=0` (`unbiased=False`), with an eps where it is divided by, or leave groups of one out",
    ),
}
"""By reason: why it happens, and what is stable."""
_NAMED_ABOVE = 3
"""Lines from an exp that is named to the formula that it is a part of, at most."""
_IN_FORMULAS = ("log-of-zero", "log-of-negative", "overflow", "zero-by-zero", "inf-minus-inf", "division-by-zero")
"""Reasons that source names the formula for."""


class UnstableFormula(Rule):
    """A formula that overflows or underflows where torch has a stable one."""

    code = "NUM110"
    name = "unstable-formula"
    summary = "A formula that overflows or underflows where torch has a stable one"
    severity = "warning"
    specialises = "NUM101"
    words = ("log", "exp", "sqrt")

    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Keep the operand of a root, a logarithm or a division away from zero."""
        return guarded(file, finding)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """A failed operator that stands in such a formula, or that has a stable twin by itself."""
        for rank, failure, severity in _runs.failures(recording, *_TWINS):
            cause, advice = _TWINS[failure.reason]
            yield self._failed(rank, failure, severity, cause, advice)
        for rank, failure, severity in _runs.failures(recording, *_IN_FORMULAS):
            found = self._formula(recording, failure)
            if found is not None:
                yield self._failed(rank, failure, severity, found.form.cause, found.form.advice)

    @staticmethod
    def _formula(recording: Recording, failure: NonFinite) -> _formulas.Formula | None:
        """The formula of the user's source that the failed line belongs to."""
        at = failure.place
        text = recording.sources.get(at.path) if at is not None else None
        if at is None or text is None:
            return None
        try:
            formulas = list(_formulas.all_in(SourceFile(at.path, text)))
        except SyntaxError:
            return None
        for one in formulas:
            lines = range(one.node.lineno, (one.node.end_lineno or one.node.lineno) + 1)
            # The exp of a quotient or of a logarithm may stand a few lines above, under a name.
            above = say.operator(failure) == "exp" and at.line >= one.event.unit.first
            if one.form.grave and (at.line in lines or (above and 0 < one.node.lineno - at.line <= _NAMED_ABOVE)):
                return one
        return None

    def _failed(
        self, rank: RankRecording, failure: NonFinite, severity: Severity, cause: str, advice: str
    ) -> Finding:  # fmt: skip
        worst = max(failure.operands, key=lambda o: o.largest, default=None)
        held = ""
        if worst is not None:
            zeros = f", {worst.zeros:,} of them 0" if worst.zeros else ""
            held = f" on {worst.dtype} values up to {_runs.figure(worst.largest)}{zeros}"
        return self.observed(
            rank, severity=severity, place=failure.place,
            message=f"in step {failure.tick} {say.operator(failure)}{held} gave {say.what(failure)}",
            cause=cause, advice=advice, measured=Measured(steps=failure.tick), about=say.about(failure),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """The formulas, written in one expression or over a name in between."""
        if not file.imports.uses("torch"):
            return
        for found in _formulas.all_in(file):
            off = "no" in (file.gradients.enabled(found.event), file.gradients.carries(found.node, found.event))
            severity: Severity = "warning" if found.form.grave and not off else "info"
            if off and found.form.only_gradient:
                continue
            yield self.suspect(
                file,
                found.event,
                f"{file.segment(found.node)}: {found.harm}",
                severity=severity,
                node=found.node,
                cause=found.form.cause,
                advice=found.form.advice,
                # Not safe: where the formula held, the last bits differ.
                edits=[edits.replace(file, found.node, found.twin)] if found.twin else (),
            )
