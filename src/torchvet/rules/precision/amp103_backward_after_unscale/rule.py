"""AMP103: a scaled backward adds to gradients that have been unscaled."""

from __future__ import annotations

from torchvet.rules.kit import Effect, Finding, Iterator, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.scaled_values import divided_after


class BackwardAfterUnscale(Rule):
    """A scaled backward adds to gradients that have been unscaled."""

    code = "AMP103"
    name = "backward-after-unscale"
    summary = "A scaled backward adds to gradients that have been unscaled already"
    severity = "error"
    words = ("unscale_",)

    fix_changes_results = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Scaled gradients that were added to divided ones, and then stepped on."""
        for fault in runs.faults(rank, "added-after-unscale"):
            yield runs.seen(
                self, rank, fault, "this backward adds to gradients that have been unscaled: in "
                f"{runs.of(fault.applied, fault.steps)} its part was {runs.smaller(fault.factor)}",
                severity=runs.grade(fault), role="unscaled",
                cause="unscale_ had divided the gradients before, and the scaler divides once in a step",
                advice="run every backward of the step first, then `scaler.unscale_(optimizer)`, then clip",
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`unscale_`, a scaled backward and `scaler.step` of the only optimizer, in this order, with no update."""
        for one in scaling.passes(file):
            for unscale in one.step.of("unscale"):
                late = self._late(one, unscale)
                if late is not None:
                    yield self._finding(file, one, unscale, late)

    @staticmethod
    def _late(one: scaling.Pass, unscale: Effect) -> Effect | None:
        if one.step.optimizers != {unscale.subject}:
            return None
        for backward in one.scaled:
            after = [s for s in one.steps if s.order > backward.order and not one.excludes(s, backward)]
            if backward.order < unscale.order or not after or not one.sure(unscale, backward):
                continue
            if not one.between(unscale, backward, "update", "scaler_step", "step"):
                return backward if after[0].through == unscale.through else None
        return None

    def _finding(self, file: SourceFile, one: scaling.Pass, unscale: Effect, late: Effect) -> Finding:
        call = f"{unscale.through}.unscale_({unscale.subject})"
        return self.suspect(
            file, late.event, f"this backward adds scaled gradients to those that {call} has divided",
            cause=f"{unscale.through}.step({unscale.subject}) divides no second time, so {late.subject or 'this loss'} "
            "counts as many times as the scale says",
            advice=f"run this backward before `{call}`", edits=divided_after(file, one, unscale, late),
            related=[self.also(file, "unscaled", unscale.event, file.segment(unscale.event.node))],
        )  # fmt: skip
