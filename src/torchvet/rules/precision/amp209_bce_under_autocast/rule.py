"""AMP209: binary cross entropy on probabilities under autocast."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Finding, Iterator, RankRecording, Recording, SourceFile, records
from torchvet.rules.precision import _losses
from torchvet.rules.precision._autocast_rule import AutocastRule
from torchvet.rules.precision.fixes.logits import with_logits
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event

_MODULE = "torch.nn.BCELoss"
_FUNCTION = "torch.nn.functional.binary_cross_entropy"


class BCEUnderAutocast(AutocastRule):
    """Binary cross entropy on probabilities under autocast: CUDA raises, the CPU saturates."""

    severity = "error"
    cause = "probabilities in half precision cannot tell 0.999 from 1, so that autocast refuses the loss on CUDA"
    advice = "let the model give logits and use BCEWithLogitsLoss / binary_cross_entropy_with_logits"
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """The loss on probabilities within a region: refused, or computed on rounded ones."""
        for seen in rank.latest(records.autocast.RoundedProbabilities, "place", "dtype"):
            message = "binary cross entropy on probabilities under autocast: they are float32 here; CUDA's raises"
            if seen.rounded:
                message = (
                    f"binary cross entropy on probabilities rounded to {seen.dtype}: {seen.saturated:,} of "
                    f"{seen.elements:,} looked at are exactly 0 or 1; CUDA's autocast raises"
                )
            lines = [("region", "the region begins", seen.region)]
            yield self.seen_at(rank, seen.place, message, lines, severity="warning" if seen.rounded else "info")
        for error in rank.latest(records.autocast.AutocastError, "kind", "place"):
            if error.kind == "bce":
                message, begins = f"autocast refuses this loss: {error.message}", "the region begins"
                yield self.seen_at(rank, error.place, message, [("region", begins, error.region)])

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A call of the loss within an active region, or in the `forward` of a module that is called in one."""
        if not file.mentions("BCELoss", "binary_cross_entropy"):
            return
        for region, at, _ in autocast.opened(file):
            for event in autocast.calls_inside(at.unit, region) if region.may_be_on else ():
                loss = _loss_run_by(file, event) if autocast.state(event) == region else None
                if loss is not None:
                    yield self._finding(file, loss, region, at)
        for event in file.calls("binary_cross_entropy"):
            decorator = autocast.active(event)
            if decorator is not None and not decorator.framework and _is_bce(file, event):
                yield self._finding(file, event, decorator, event)

    def _finding(self, file: SourceFile, loss: Event, region: autocast.Region, at: Event) -> Finding:
        harm = "confident predictions round to 1" if region.device == "cpu" else "CUDA's autocast raises"
        return self.suspect_at(
            loss,
            f"{file.segment(loss.call.func)}(…) takes probabilities under autocast: {harm}",
            severity="error" if region.device == "cuda" and region.enabled == "yes" else "warning",
            edits=with_logits(file, loss),
            related={"region": (at, file.segment(region.node))},
        )


def _is_bce(file: SourceFile, event: Event) -> bool:
    function = event.call.func
    if file.dotted(function) == _FUNCTION:
        return True
    made = [function] if isinstance(function, ast.Call) else _losses.makers(function, event)
    return bool(made) and all(isinstance(m, ast.Call) and file.dotted(m.func) == _MODULE for m in made)


def _loss_run_by(file: SourceFile, event: Event) -> Event | None:
    """The loss that a call is, or that a function of this file, or the `forward` of one of its modules, computes when
    it is called."""
    if _is_bce(file, event):
        return event
    known = file.roles.class_of(event.call.func, event.unit) if file.callee(event) is None else None
    callee = known.method("forward") if known is not None else file.callee(event)
    calls = (e for e in callee.events if e.node.__class__ is ast.Call) if callee is not None else ()
    return next((e for e in calls if autocast.state(e) is None and _is_bce(file, e)), None)
