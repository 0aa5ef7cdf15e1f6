"""NUM106: softmax over a row that is masked throughout."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Finding, Iterator, Recording, Sequence, SourceFile
from torchvet.rules.numerics._runs import Failure, NumberRule
from torchvet.rules.numerics.fixes.masks import filled_finitely

_MOST_ROWS = 6


class FullyMaskedRow(NumberRule):
    """Softmax over a row that is masked throughout."""

    code = "NUM106"
    name = "fully-masked-row"
    summary = "Softmax over a row whose every score is -inf gives NaN"
    severity = "error"
    specialises = "NUM101"
    reasons = ("masked-row",)

    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The mask's -inf as the dtype's lowest number."""
        return filled_finitely(file, finding)

    def failed(self, failure: Failure, recording: Recording) -> Iterator[Finding]:
        """A softmax that made NaN of infinities."""
        record = failure.record
        scores = next((operand for operand in record.operands if operand.infinities), None)
        which = masked = ""
        if record.rows:
            more = " and more" if len(record.rows) > _MOST_ROWS else ""
            of = f" of {scores.shape[0]}" if scores is not None and len(scores.shape) > 1 else ""
            which = f" in row {', '.join(map(str, record.rows[:_MOST_ROWS]))}{more}{of}"
        if scores is not None:
            masked = f"; {scores.infinities:,} of its scores ({scores.dtype} {list(scores.shape)}) are infinite"
        met = f"{failure.operator.strip('_')} met a row whose every score is -inf"
        cause = "the mask leaves such a row nothing: softmax computes -inf minus -inf"
        advice = "fill with `torch.finfo(scores.dtype).min` in place of -inf, or skip rows that are masked throughout"
        yield self.in_step(failure, f"{met}{which}, and gave NaN{masked}", cause, advice)
