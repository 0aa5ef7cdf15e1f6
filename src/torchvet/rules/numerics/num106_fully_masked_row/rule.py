"""NUM106: softmax over a row that is masked throughout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Finding, Measured, RankRecording, Recording, Rule, Severity, SourceFile
from torchvet.rules.numerics import _nonfinite_words as say
from torchvet.rules.numerics import _runs
from torchvet.rules.numerics.fixes.masks import filled_finitely

if TYPE_CHECKING:
    from torchvet.recording.records.nonfinite import NonFinite

_MOST_ROWS = 6


class FullyMaskedRow(Rule):
    """Softmax over a row that is masked throughout."""

    code = "NUM106"
    name = "fully-masked-row"
    summary = "Softmax over a row whose every score is -inf gives NaN"
    severity = "error"
    specialises = "NUM101"

    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The mask's -inf as the dtype's lowest number."""
        return filled_finitely(file, finding)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """A softmax that made NaN of infinities."""
        for rank, failure, severity in _runs.failures(recording, "masked-row"):
            yield self._finding(rank, failure, severity)

    def _finding(self, rank: RankRecording, failure: NonFinite, severity: Severity) -> Finding:
        scores = next((o for o in failure.operands if o.infinities), None)
        shape = list(scores.shape) if scores is not None else []
        masked = ""
        if scores is not None:
            masked = f"; {scores.infinities:,} of its scores ({scores.dtype} {shape}) are infinite"
        rows = ", ".join(map(str, failure.rows[:_MOST_ROWS]))
        rows += " and more" if len(failure.rows) > _MOST_ROWS else ""
        of = f" of {shape[0]}" if len(shape) > 1 else ""
        which = f" in row {rows}{of}" if rows else ""
        return self.observed(
            rank, severity=severity, place=failure.place,
            message=f"in step {failure.tick} {say.operator(failure).strip('_')} met a row whose every score is -inf"
            f"{which}, and gave NaN{masked}",
            cause="the mask leaves such a row nothing: softmax computes -inf minus -inf",
            advice="fill with `torch.finfo(scores.dtype).min` in place of -inf, or leave rows out that are masked "
            "throughout",
            measured=Measured(steps=failure.tick),
        )  # fmt: skip
