"""AMP201: a loss is computed on half logits, outside the autocast region that made them."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Sequence, SourceFile, records
from torchvet.rules.precision import _losses
from torchvet.rules.precision._autocast_rule import AutocastRule, callers, half_operators
from torchvet.rules.precision.fixes.float32 import loss_in_float32
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Unit, edits, terminal


class LossOutsideAutocast(AutocastRule):
    """A loss is computed on half logits, outside the autocast region that made them."""

    severity = "warning"
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """What the loss is given, in float32."""
        return loss_in_float32(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Operators of losses that ran in half precision outside of regions, where a half loss went backward."""
        losses = rank.latest(records.autocast.HalfLoss, "place", "dtype")
        for found in half_operators(rank, "outside"):
            here = [seen for seen in found if seen.loss]
            backward = [loss for loss in losses if here and loss.dtype == here[0].dtype]
            if backward:
                yield self._observed(rank, here, backward)

    def _observed(
        self, rank: RankRecording, here: list[records.autocast.HalfOperator], losses: list[records.autocast.HalfLoss]
    ) -> Finding:
        dtype, scale, overflow = here[0].dtype, max(loss.scale for loss in losses), ""
        # The gradient of the scaled loss is the scale itself, and 65536 is more than float16 holds.
        if dtype == "float16" and scale > 65504:
            overflow = f", and a gradient scaled by {scale:,.0f} does not fit into it"
        names = ", ".join(dict.fromkeys(s.operator for s in here))
        return self.seen_at(
            rank,
            here[0].place,
            f"the loss is computed in {dtype} outside autocast: {names} off by up to "
            f"{max(s.error for s in here):.2g} of the largest value in float32{overflow}",
            [("backward", "the half loss goes backward", losses[0].place), *callers(here[0])],
            cause=f"the region that has ended left its outputs in {dtype}, and nothing casts them after its end",
            advice="move the loss into the region, or give it `logits.float()`",
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A loss of class indices, with a backward to come, on what a module gave within a region before it."""
        if file.imports.uses("accelerate"):
            return
        for unit in _with_regions(file):
            for event in [e for calls in unit.calls.values() for e in calls if e.call.args]:
                if _losses.stays_half(event) and autocast.state(event) is None and _is_trained(event):
                    yield from self._judge(file, event)

    def _judge(self, file: SourceFile, event: Event) -> Iterator[Finding]:
        given = event.call.args[0]
        name = _losses.rooted(given)
        binding = event.binding_of(name)
        made = _losses.half_output(binding, name) if binding is not None else None
        region = _losses.region_of(made) if made is not None else None
        if made is None or binding is None or region is None or not region.may_be_on:
            return
        called, logits = file.segment(event.call.func), file.segment(given)
        yield self.suspect_at(
            event,
            f"{called}({logits}, …) runs outside the autocast region that left {logits} in half precision",
            cause=f"{terminal(made.node)}(…) gave {name} within the region, and nothing casts it after the region's "
            "end: loss and softmax are rounded to half precision",
            advice=f"move the loss into the region, or call `{called}({logits}.float(), …)`",
            edits=[edits.replace(file, given, f"{logits}.float()")],
            related={"made": (binding, file.segment(made.node))},
        )


def _with_regions(file: SourceFile) -> Iterator[Unit]:
    """The functions that open a region which may be on; with a model that opens its own, those that go backward too."""
    units = {id(at.unit): at.unit for region, at, _ in autocast.opened(file) if region.may_be_on}
    if any(autocast.of_forward(known) is not None for known in file.classes.values()):
        units |= {id(u): u for u in file.units_calling("backward")}
    yield from units.values()


def _is_trained(event: Event) -> bool:
    """Whether a backward follows in the same unit; a figure that is only printed needs no finding."""
    later = [e for name in ("backward", "manual_backward") for e in event.unit.calls.get(name, ())]
    follows = any(e.index > event.index and not e.excludes(event) for e in later)
    return follows and event.unit.file.gradients.enabled(event) != "no"
