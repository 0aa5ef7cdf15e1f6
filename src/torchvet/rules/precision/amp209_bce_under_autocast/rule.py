"""AMP209: binary cross entropy on probabilities under autocast."""

from __future__ import annotations

import ast

from torchvet.recording.records.autocast import AutocastError, RoundedProbabilities
from torchvet.rules.kit import Finding, Iterator, RankRecording, Recording, Rule, Severity, SourceFile
from torchvet.rules.precision import _losses
from torchvet.rules.precision._observed import also, totals
from torchvet.rules.precision.fixes.logits import with_logits
from torchvet.rules.shared import autocast_regions
from torchvet.source.model import Event

_MODULE = "torch.nn.BCELoss"
_FUNCTION = "torch.nn.functional.binary_cross_entropy"


class BCEUnderAutocast(Rule):
    """Binary cross entropy on probabilities under autocast."""

    code = "AMP209"
    name = "bce-under-autocast"
    summary = "Binary cross entropy on probabilities under autocast: CUDA raises, the CPU saturates"
    severity = "error"
    words = ("autocast",)

    fix_changes_results = True
    needs_at_work = "autocast"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """The loss on probabilities within a region: refused, or computed on rounded ones."""
        for seen in totals(rank, RoundedProbabilities, "place", "dtype"):
            yield self._rounded(rank, seen)
        for error in totals(rank, AutocastError, "kind", "place"):
            if error.kind == "bce":
                yield self._observed(rank, error, "error", f"autocast refuses this loss: {error.message}")

    def _rounded(self, rank: RankRecording, seen: RoundedProbabilities) -> Finding:
        if not seen.rounded:
            message = "binary cross entropy on probabilities under autocast: they are float32 here; CUDA's raises"
            return self._observed(rank, seen, "info", message)
        message = (f"binary cross entropy on probabilities rounded to {seen.dtype}: {seen.saturated:,} of "
                   f"{seen.elements:,} looked at are exactly 0 or 1; CUDA's autocast raises")  # fmt: skip
        return self._observed(rank, seen, "warning", message)

    def _observed(self, rank: RankRecording, seen: AutocastError | RoundedProbabilities, severity: Severity,
                  message: str) -> Finding:  # fmt: skip
        return self.observed(
            rank, severity=severity, place=seen.place, message=message,
            cause="probabilities in half precision cannot tell 0.999 from 1, so that autocast refuses the loss on CUDA",
            advice="let the model give logits and use BCEWithLogitsLoss / binary_cross_entropy_with_logits",
            related=also("region", "the region begins", seen.region),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A call of the loss within an active region, or in the `forward` of a module that is called in one."""
        if not file.mentions("BCELoss", "binary_cross_entropy"):
            return
        for region, at, _ in autocast_regions.opened(file):
            if region.enabled == "no" or region.framework:
                continue
            for event in autocast_regions.inside(at.unit, region):
                if event.node.__class__ is ast.Call and autocast_regions.state(event) == region:
                    loss = event if self._is_bce(file, event) else self._within(file, event)
                    if loss is not None:
                        yield self._finding(file, loss, region, at)
        yield from self._decorated(file)

    def _decorated(self, file: SourceFile) -> Iterator[Finding]:
        """The loss in a function that is decorated with autocast."""
        for event in file.calls("binary_cross_entropy"):
            region = autocast_regions.active(event)
            if region is not None and not region.framework and self._is_bce(file, event):
                yield self._finding(file, event, region, event)

    @staticmethod
    def _is_bce(file: SourceFile, event: Event) -> bool:
        function = event.call.func
        if file.dotted(function) == _FUNCTION:
            return True
        if isinstance(function, ast.Call):
            return file.dotted(function.func) == _MODULE
        made = _losses.makers(function, event)
        return bool(made) and all(isinstance(m, ast.Call) and file.dotted(m.func) == _MODULE for m in made)

    def _within(self, file: SourceFile, event: Event) -> Event | None:
        """The loss that a function of this file, or the `forward` of one of its modules, computes when it is called."""
        callee = file.callee(event)
        if callee is None:
            known = file.roles.class_of(event.call.func, event.unit)
            callee = known.method("forward") if known is not None else None
        if callee is None:
            return None
        calls = (e for e in callee.events if e.node.__class__ is ast.Call)
        return next((e for e in calls if autocast_regions.state(e) is None and self._is_bce(file, e)), None)

    def _finding(self, file: SourceFile, loss: Event, region: autocast_regions.Region, at: Event) -> Finding:
        severity: Severity = "error" if region.device == "cuda" and region.enabled == "yes" else "warning"
        harm = "confident predictions round to 1" if region.device == "cpu" else "CUDA's autocast raises"
        return self.suspect(
            file, loss, f"{file.segment(loss.call.func)}(…) takes probabilities under autocast: {harm}",
            severity=severity,
            cause="probabilities in half precision cannot tell 0.999 from 1, so that autocast refuses the loss on CUDA",
            advice="let the model give logits and use BCEWithLogitsLoss / binary_cross_entropy_with_logits",
            edits=with_logits(file, loss),
            related=[self.also(file, "region", at, file.segment(region.node))],
        )  # fmt: skip
