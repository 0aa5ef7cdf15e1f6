"""NUM106: softmax over a row that is masked throughout."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Finding, Iterator, Recording, Sequence, SourceFile
from torchvet.rules.numerics._runs import Failure, NumberRule
from torchvet.rules.numerics.fixes.masks import filled_finitely


class FullyMaskedRow(NumberRule):
    """Softmax over a row whose every score is -inf gives NaN."""

    severity = "error"
    specialises = "NUM101"
    reasons = ("masked-row",)
    fix_changes_results = True
    fix_keeps_finite = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The mask's -inf as the dtype's lowest number."""
        return filled_finitely(file, finding)

    def failed(self, failure: Failure, recording: Recording) -> Iterator[Finding]:
        """A softmax that made NaN of infinities."""
        scores = next((operand for operand in failure.record.operands if operand.infinities), None)
        masked = ""
        if scores is not None and failure.record.exact:
            masked = f"; {scores.infinities:,} of its scores ({scores.dtype} {list(scores.shape)}) are infinite"
        met = f"{failure.operator.strip('_')} met a row whose every score is -inf"
        advice = "fill with `torch.finfo(scores.dtype).min` in place of -inf, or skip rows that are masked throughout"
        yield self.in_step(failure, f"{met}, and gave NaN{masked}", advice=advice)
