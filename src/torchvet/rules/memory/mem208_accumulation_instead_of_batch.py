"""MEM208: which batch sizes fit, and the largest that does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.amounts import percent
from torchvet.finding import Finding, Measured, Related, Remedy, Severity
from torchvet.recording.dry_records import DryBatch, DrySearch
from torchvet.rules import words
from torchvet.rules.base import Rule
from torchvet.rules.memory._dry import Sized, sized

if TYPE_CHECKING:
    from torchvet.recording import Recording

_WORTH = 2
"""How many times the program's batch the largest must be, to be told where both fit."""


class AccumulationInsteadOfBatch(Rule):
    """Which batch sizes fit, and the largest that does."""

    code = "MEM208"
    name = "accumulation-instead-of-batch"
    summary = "Another batch size fits the card: a larger one, or a smaller one with accumulation"
    severity = "info"

    what = (
        "The peak of a step is a fixed part (parameters, gradients, optimizer state) and a part that grows with the "
        "batch. A dry run takes steps with other batch sizes and looks for the largest that the card has room for, "
        "each begun without optimizer state, as a run begins."
    )
    why = (
        "A batch that does not fit can be had in micro-batches whose gradients are accumulated: where the loss is a "
        "mean over rows, the same update for less memory and a little more time. One that is much smaller than what "
        "fits leaves the GPU less busy than it could be, as a rule."
    )
    when_not = (
        "A loss that compares rows with each other (contrastive ones), or is a mean over some of the rows' tokens, is "
        "another one for micro-batches. The batch size is part of the training recipe: a larger one wants another "
        "learning rate. BatchNorm sees micro-batches, not the whole. A program is told nothing where twice its batch "
        "would not fit."
    )
    proof = (
        "torch 2.13.0, CPU, simulated GPU of 1 GiB. A dry run of the example says 189,432,832 bytes for 6,000 rows: "
        "what the program takes with 6,000 written into it and real numbers. It says that 27,277 fit, which they do. A "
        "straight line through the amounts promises 39,967; 38,046 fail already, for want of a piece that is large "
        "enough. On a real GPU libraries may take more than operators' results."
    )
    remedy = (
        "Where the batch does not fit: the largest that does, with `loss / n` and `optimizer.step()` after n of them. "
        "Where it fits many times over: a larger one, if the recipe allows."
    )
    runs_on = "cuda"
    found_with = ("run", "--simulate-gpu", "1GiB", "--dry")

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(50):
    x = torch.randn(3000, 512).cuda()
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(50):
    x = torch.randn(24000, 512).cuda()
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """The table, where the program's own batch does not fit or a much larger one would."""
        for one in sized(recording):
            own, steps = one.size.batch, [b for b in one.rank.all(DryBatch) if b.batch]
            if not own or len(steps) < 2:
                continue
            largest = max((b.batch for b in steps if b.fits(one.size)), default=0)
            if one.size.ran_out or largest >= _WORTH * own:
                yield self._finding(one, steps, largest)

    def _finding(self, one: Sized, steps: list[DryBatch], largest: int) -> Finding:
        own, over = one.size.batch, one.size.ran_out
        severity: Severity = "warning" if over else "info"
        at = next(b for b in steps if b.batch == own)
        best = next((b for b in steps if b.batch == largest and b.fits(one.size)), None)
        ended = one.rank.last(DrySearch) is not None
        found = "the largest found to fit is" if ended else "the search ended early; the largest tried that fits is"
        largest_text = "no batch that was tried fits" if best is None else (
            f"{found} {largest:,}, which reserves {words.size(best.reserved)}"
        )  # fmt: skip
        return Finding(
            code=self.code, name=self.name, severity=severity, evidence="observed", location=None,
            message=f"a step with a batch of {own:,} reserves {words.size(at.reserved)}, "
            f"{percent(at.reserved / one.size.room)} of the card's {words.size(one.size.room)}; {largest_text}",
            cause=_law(one, steps), remedy=Remedy(summary=_advice(own, largest, over)),
            related=[_row(b, one) for b in sorted(steps, key=lambda b: b.batch)],
            measured=Measured(bytes=at.reserved, peak_bytes=at.allocated, share=at.reserved / one.size.room),
            device="cuda:0",
        )  # fmt: skip


def _law(one: Sized, steps: list[DryBatch]) -> str:
    """The straight line through the steps furthest apart that were not cut short."""
    points = sorted((b.batch, b.allocated) for b in steps if not b.ran_out)
    (few, low), (many, high) = points[0], points[-1]
    if few == many:
        return "the part of the peak that grows with the batch could not be told"
    each = (high - low) / (many - few)
    return f"the peak is {words.size(max(0.0, low - each * few))} and {words.size(each)} a row, by {len(points)} steps"


def _advice(own: int, largest: int, over: bool) -> str:
    if not over:
        return f"a batch of up to {largest:,} fits, if the recipe allows another"
    if not largest:
        return "no batch fits: checkpointing (MEM201), less optimizer state (MEM206), sharding or a larger card"
    parts = math.ceil(own / largest)
    return (
        f"{parts} micro-batches of {math.ceil(own / parts):,} with accumulation (`loss / {parts}`, `optimizer.step()` "
        "after all of them) give the same update where the loss is a mean over rows, but for BatchNorm"
    )


def _row(step: DryBatch, one: Sized) -> Related:
    verdict = "fits" if step.fits(one.size) else "does not fit"
    return Related(
        role=f"batch {step.batch:,}",
        message=f"{words.size(step.allocated)} allocated, {words.size(step.reserved)} reserved: {verdict}",
    )
