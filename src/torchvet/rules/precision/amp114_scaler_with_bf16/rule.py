"""AMP114: a gradient scaler around bf16 autocast, which needs none."""

from __future__ import annotations

import ast

from torchvet.recording.records.autocast import AutocastRegion
from torchvet.rules.kit import Edit, Finding, Iterator, Measured, RankRecording, Recording, Rule, Sequence, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._observed import totals
from torchvet.rules.precision.fixes.scalers import switched_off
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, keyword


class ScalerWithBf16(Rule):
    """A gradient scaler around bf16 autocast, which needs none."""

    code = "AMP114"
    name = "scaler-with-bf16"
    summary = "A gradient scaler is used with bf16 autocast, which needs none"
    severity = "info"
    words = ("caler",)
    needs_at_work = "autocast"

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The only scaler of the file switched off: a run names the line where it steps."""
        made = [m for m in scaling.made_by(file) if scaling.bound_to(m)]
        return switched_off(file, made[0]) if len(made) == 1 else ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Steps through an enabled scaler where every region that was on is bf16, and no parameter is fp16."""
        dtypes = {r.dtype for r in totals(rank, AutocastRegion, "place", "device", "dtype") if r.enabled}
        for seen in runs.uses(rank):
            if dtypes == {"bfloat16"} and seen.enabled and seen.steps and not seen.half_parameters:
                yield self.observed(
                    rank, severity="info", place=seen.step_place,
                    message=f"the gradient scaler is needless: autocast was bf16 throughout {seen.steps:,} steps",
                    cause="scaling by a power of two and dividing again changes nothing in bf16",
                    advice="drop the scaler: call backward() and step() directly",
                    measured=Measured(steps=seen.steps),
                )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A scaler that is on, in a file whose every autocast region is bf16."""
        if not file.mentions("bfloat16", '"cpu"', "'cpu'"):
            return
        opened = autocast.opened(file)
        made = [
            m for m in scaling.made_by(file) if scaling.bound_to(m) and _on_with(file, m, [r for r, _, _ in opened])
        ]
        if not made or not any(scaling.is_scale_call(e.node, e.unit) for e in file.calls("scale")):
            return
        if opened and all(r.dtype == "bf16" and not r.framework for r, _, _ in opened):
            yield self._finding(file, made[0], opened[0][1])

    def _finding(self, file: SourceFile, made: Event, region: Event) -> Finding:
        name = scaling.bound_to(made)
        return self.suspect(
            file, made, f"{name} is needless: autocast is bf16 here, which has the range of fp32",
            cause="scaling by a power of two and dividing again changes nothing in bf16",
            advice=f"drop {name}: call backward() and step() directly; or make it with `enabled=False`",
            edits=switched_off(file, made),
            related=[self.also(file, "autocast", region, file.lines[region.line - 1].strip())],
        )  # fmt: skip


def _on_with(file: SourceFile, made: Event, opened: list[autocast.Region]) -> bool:
    """Whether a scaler is on in every run, or under the very switch that turns all the regions on."""
    switch = keyword(made.call, "enabled")
    if switch is None:
        return all(region.enabled == "yes" for region in opened)
    if scaling.is_constant(switch, False):
        return False
    given = [autocast.arguments(file, r.call).get("enabled") if r.call is not None else None for r in opened]
    return bool(given) and all(g is not None and ast.unparse(g) == ast.unparse(switch) for g in given)
