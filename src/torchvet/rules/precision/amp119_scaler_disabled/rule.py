"""AMP119: a scaler that is off, where fp16 training needs one."""

from __future__ import annotations

import ast

from torchvet.rules.core.at_work import was_at_work
from torchvet.rules.kit import Edit, Finding, Iterator, Recording, Sequence, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, uses
from torchvet.rules.precision.fixes.scalers import for_device, for_device_of
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, edits, is_set, keyword


class ScalerDisabled(ScalerRule):
    """A gradient scaler is off, or made for a device that is not used, and scales nothing."""

    severity = "warning"
    words = ("GradScaler",)
    needs_at_work = None
    fix_changes_results = True

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: a scaler that is off and whose losses were looked at, or one that is on."""
        off = any(use.half is not None for rank in recording.ranks for use in uses(rank))
        return super().could_be_measured(recording) and (off or was_at_work("a scaler", recording))

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The only scaler of the file made for the device of its regions, where a run has seen it switch itself off."""
        made, opened = scaling.made_by(file), autocast.opened(file)
        if len(made) != 1 or keyword(made[0].call, "enabled") is not None or not opened:
            return ()
        return for_device_of(file, made[0], [region for region, _, _ in opened], opened[0][1].unit)

    def of_use(self, use: records.scaling.ScalingUse) -> Report | None:
        """Scalers that were off while fp16 went into their losses."""
        if use.enabled or not use.steps or not (use.half or use.asked):
            return None
        zeros = f", {use.zeros:.0%} of the gradients looked at were exactly zero" if use.zeros else ""
        itself = f" (it is made for {use.device}, which is not there)" if use.asked else ""
        return Report(
            f"this scaler is off{itself}: {use.steps:,} steps went unscaled"
            + (f" with fp16 in the loss's graph{zeros}" if use.half else ""),
            cause="a scaler that is off returns the loss as it is and looks for no overflow",
            advice="make it for the device that is trained on, `torch.amp.GradScaler(device)`, and enable it",
            severity="warning" if use.half else "info",
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A scaler that is off by a constant, or by its device, in a file that trains under fp16 autocast."""
        opened = [region for region, _, _ in autocast.opened(file)]
        half = [r for r in opened if r.dtype == "fp16" and r.may_be_on]
        # bf16 needs no scaler: off is right there.
        needless = {r.dtype for r in opened} == {"bf16"}
        for made in scaling.named_scalers(file) if scaling.scale_calls(file) else ():
            if is_set(made.call, "enabled", False):
                if not needless and _is_the_only_one(file, made):
                    yield self._off(file, made, bool(half))
            elif half and _device(file, made) == "cuda" and all(r.device in ("cpu", "mps") for r in half):
                yield self._elsewhere(file, made, half[0].device)

    def _off(self, file: SourceFile, made: Event, half: bool) -> Finding:
        name = scaling.bound_to(made)
        return self.suspect_at(
            made,
            f"{name} is off: every call of it is a no-op" + (", under fp16 autocast" if half else ""),
            severity="warning" if half else "info",
            cause="with enabled=False scale() returns the loss as it is, and step() looks for no overflow",
            advice=f"enable {name}, or drop it" if half else f"drop {name}, or enable it together with autocast",
            edits=edits.without_argument(file, made.call, "enabled") if half else (),
        )

    def _elsewhere(self, file: SourceFile, made: Event, device: str) -> Finding:
        return self.suspect_at(
            made,
            f"{scaling.bound_to(made)} is made for CUDA, and autocast runs on {device}: without CUDA it is off",
            cause="a scaler for CUDA switches itself off on a machine without it and scales nothing",
            advice=f'make it for the device: `torch.amp.GradScaler("{device}")`',
            edits=for_device(file, made, device),
        )


def _is_the_only_one(file: SourceFile, made: Event) -> bool:
    """Whether what a scaler is assigned to is bound nowhere else."""
    target = made.statement.targets[0] if isinstance(made.statement, ast.Assign) else None
    return len(file.roles.values(target, made.unit)) == 1


def _device(file: SourceFile, made: Event) -> str:
    """The device that a scaler is made for; empty where the text does not say."""
    dotted = file.dotted(made.call.func)
    if dotted.startswith("torch.cuda."):
        return "cuda"
    given = keyword(made.call, "device") or (made.call.args[0] if made.call.args else None)
    if given is None:
        return "cuda" if dotted in ("torch.amp.GradScaler", "torch.GradScaler") else ""
    known = autocast.devices(file, given, made.unit)
    return known.pop() if len(known) == 1 else ""
