"""MEM208: which batch sizes fit, and the largest that does."""

from __future__ import annotations

import math

from torchvet.rules.kit import Finding, Findings, Measured, Related, percent, records, size
from torchvet.rules.memory._dry import DryRule, Sized

_WORTH = 2
"""How many times the program's batch the largest must be, for a finding where both fit."""


class AccumulationInsteadOfBatch(DryRule):
    """Another batch size fits the card: a larger one, or a smaller one with accumulation."""

    found_with = ("run", "--simulate-gpu", "1GiB", "--dry")

    def in_step(self, one: Sized) -> Findings:
        """The table, where the program's own batch does not fit or a much larger one would."""
        own, steps = one.size.batch, [b for b in one.rank.all(records.dry.DryBatch) if b.batch]
        if not own or len(steps) < 2:
            return
        largest = max((b.batch for b in steps if b.fits(one.size)), default=0)
        if one.size.ran_out or largest >= _WORTH * own:
            yield self._finding(one, steps, largest)

    def _finding(self, one: Sized, steps: list[records.dry.DryBatch], largest: int) -> Finding:
        own = one.size.batch
        # The program's own batch is always among those tried.
        at = next(b for b in steps if b.batch == own)
        best = next((b for b in steps if b.batch == largest and b.fits(one.size)), None)
        ended = one.rank.last(records.dry.DrySearch) is not None
        found = "the largest found to fit is" if ended else "the search ended early; the largest tried that fits is"
        fits = f"{found} {largest:,}, which reserves {size(best.reserved)}" if best else "no batch that was tried fits"
        return self.observed(
            one.rank,
            severity=one.severity,
            place=None,
            message=f"a step with a batch of {own:,} reserves {size(at.reserved)}, "
            f"{percent(at.reserved / one.size.room)} of the card's {size(one.size.room)}; {fits}",
            cause=_law(steps),
            advice=_advice(own, largest, one.size.ran_out),
            related=[_row(b, one) for b in sorted(steps, key=lambda b: b.batch)],
            measured=Measured(bytes=at.reserved, peak_bytes=at.allocated, share=at.reserved / one.size.room),
            device="cuda:0",
        )


def _law(steps: list[records.dry.DryBatch]) -> str:
    """The straight line through the steps furthest apart that were not cut short."""
    # A step that ran out has the card's size for its peak.
    points = sorted((b.batch, b.allocated) for b in steps if not b.ran_out)
    (few, low), (many, high) = points[0], points[-1]
    if few == many:
        return "the part of the peak that grows with the batch is not known"
    each = (high - low) / (many - few)
    return f"the peak is {size(max(0.0, low - each * few))} and {size(each)} a row, by {len(points)} steps"


def _advice(own: int, largest: int, over: bool) -> str:
    if not over:
        return f"a batch of up to {largest:,} fits, if the recipe allows another"
    if not largest:
        return "no batch fits: checkpointing (MEM201), less optimizer state (MEM206), sharding or a larger card"
    # As few as fit, and then as even as they can be.
    parts = math.ceil(own / largest)
    return (
        f"{parts} micro-batches of {math.ceil(own / parts):,} with accumulation (`loss / {parts}`, `optimizer.step()` "
        "after all of them) give the same update where the loss is a mean over rows, but for BatchNorm"
    )


def _row(step: records.dry.DryBatch, one: Sized) -> Related:
    verdict = "fits" if step.fits(one.size) else "does not fit"
    return Related(
        role=f"batch {step.batch:,}",
        message=f"{size(step.allocated)} allocated, {size(step.reserved)} reserved: {verdict}",
    )
