"""NUM106: softmax over a row that is masked throughout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Measured, Severity
from torchvet.rules.base import Rule
from torchvet.rules.numerics import _nonfinite_words as say
from torchvet.rules.numerics import _runs
from torchvet.rules.numerics._mask_mends import filled_finitely
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.finding import Edit
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.nonfinite_records import NonFinite
    from torchvet.source.model import SourceFile

_MOST_ROWS = 6


class FullyMaskedRow(Rule):
    """Softmax over a row that is masked throughout."""

    code = "NUM106"
    name = "fully-masked-row"
    summary = "Softmax over a row whose every score is -inf gives NaN"
    severity = "error"
    specialises = "NUM101"

    what = (
        "Softmax takes the largest score off a row and divides by the sum of what is left. Where a mask has made every "
        "score of a row -inf, that is -inf minus -inf: the whole row is NaN. Padding that covers a sequence, a query "
        "of padding, a window without a key, or two masks that together leave nothing do it."
    )
    why = (
        "The row is one that nobody looks at, but its NaN goes on: through the product with the values, a mean, a "
        "residual connection, and backward into every weight, even where the loss leaves the row out."
    )
    when_not = (
        "Masks with -inf are healthy as long as each row keeps one position, as causal masks do. With a large finite "
        "number (`torch.finfo(dtype).min`) such a row becomes uniform. `scaled_dot_product_attention` gives zeros for "
        "it (torch 2.5 and later)."
    )
    proof = (
        "torch 2.13.0, CPU: softmax of 4 scores of -inf gave 4 NaN, log_softmax likewise; filled with "
        "`torch.finfo(torch.float32).min` each was 0.25; `scaled_dot_product_attention` with the same mask, boolean or "
        "additive, gave 0. In the example 1 of 32 sequences is padding throughout from step 21 on: the loss is NaN "
        "from then on, with finite masks it was 0.0125 after 40 steps."
    )
    remedy = (
        "Fill with `torch.finfo(scores.dtype).min` where a row may be masked as a whole, or leave such rows out before "
        "attention, or use `scaled_dot_product_attention`; then set the row's result to 0."
    )

    mend_changes_results = True

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Linear(8, 16)
head = nn.Linear(16, 1)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.05)
for step in range(40):
    x = torch.randn(32, 6, 8)
    lengths = torch.randint(1, 7, (32,))
    if step > 19:
        lengths[3] = 0  # an empty text
    padding = torch.arange(6) >= lengths[:, None]
    hidden = embed(x)
    scores = hidden @ hidden.transpose(1, 2)
    scores = scores.masked_fill(padding[:, None], float("-inf"))
    mixed = scores.softmax(-1) @ hidden
    error = head(mixed).squeeze(2) - x.mean(2)
    loss = error[~padding].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Linear(8, 16)
head = nn.Linear(16, 1)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.05)
for step in range(40):
    x = torch.randn(32, 6, 8)
    lengths = torch.randint(1, 7, (32,))
    if step > 19:
        lengths[3] = 0  # an empty text
    padding = torch.arange(6) >= lengths[:, None]
    hidden = embed(x)
    scores = hidden @ hidden.transpose(1, 2)
    scores = scores.masked_fill(padding[:, None], torch.finfo(scores.dtype).min)
    mixed = scores.softmax(-1) @ hidden
    error = head(mixed).squeeze(2) - x.mean(2)
    loss = error[~padding].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def mends(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
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
        return observed(
            self, rank, severity=severity, place=failure.place,
            message=f"in step {failure.tick} {say.operator(failure).strip('_')} met a row whose every score is -inf"
            f"{which}, and gave NaN{masked}",
            cause="the mask leaves such a row nothing: softmax computes -inf minus -inf",
            advice="fill with `torch.finfo(scores.dtype).min` in place of -inf, or leave rows out that are masked "
            "throughout",
            measured=Measured(steps=failure.tick),
        )  # fmt: skip
