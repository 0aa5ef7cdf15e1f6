"""AMP114: a gradient scaler around bf16 autocast, which needs none."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Sequence, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule
from torchvet.rules.precision.fixes.scalers import switched_off
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, is_set, keyword


class ScalerWithBf16(ScalerRule):
    """A gradient scaler is used with bf16 autocast, which needs none."""

    severity = "info"
    words = ("caler",)
    needs_at_work = "autocast"
    cause = "scaling by a power of two and dividing again changes nothing in bf16"

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The only scaler of the file switched off: a run names the line where it steps."""
        made = scaling.named_scalers(file)
        return switched_off(file, made[0]) if len(made) == 1 else ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Steps through an enabled scaler where every region that was on is bf16, and no parameter is fp16."""
        regions = rank.latest(records.autocast.AutocastRegion, "place", "device", "dtype")
        # bf16 has the range of float32, and results are the same to the bit without a scaler.
        if {r.dtype for r in regions if r.enabled} == {"bfloat16"}:
            yield from super().in_rank(rank, recording)

    def of_use(self, use: records.scaling.ScalingUse) -> Report | None:
        """A scaler that was on and stepped parameters in float32."""
        if not use.enabled or not use.steps or use.half_parameters:
            return None
        return Report(
            f"the gradient scaler is needless: autocast was bf16 throughout {use.steps:,} steps",
            cause=self.cause,
            advice="drop the scaler: call backward() and step() directly",
            place=use.step_place,
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A scaler that is on, in a file whose every autocast region is bf16."""
        opened = autocast.opened(file) if file.mentions("bfloat16", '"cpu"', "'cpu'") else []
        regions = [region for region, _, _ in opened]
        if not regions or any(r.dtype != "bf16" or r.framework for r in regions):
            return
        made = next((m for m in scaling.named_scalers(file) if _on_with(file, m, regions)), None)
        if made is not None and scaling.scale_calls(file):
            yield self._finding(file, made, opened[0][1])

    def _finding(self, file: SourceFile, made: Event, region: Event) -> Finding:
        name = scaling.bound_to(made)
        return self.suspect_at(
            made,
            f"{name} is needless: autocast is bf16 here, which has the range of fp32",
            advice=f"drop {name}: call backward() and step() directly; or make it with `enabled=False`",
            edits=switched_off(file, made),
            related={"autocast": (region, file.lines[region.line - 1].strip())},
        )


def _on_with(file: SourceFile, made: Event, opened: list[autocast.Region]) -> bool:
    """Whether a scaler is on in every run, or under the very switch that turns all the regions on."""
    switch = keyword(made.call, "enabled")
    if switch is None:
        return all(region.enabled == "yes" for region in opened)
    given = [autocast.argument(file, region, "enabled") for region in opened]
    constant = is_set(made.call, "enabled", False)
    return not constant and all(g is not None and ast.unparse(g) == ast.unparse(switch) for g in given)
