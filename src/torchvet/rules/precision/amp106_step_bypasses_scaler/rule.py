"""AMP106: an optimizer steps past the scaler, on gradients that are still multiplied by the loss scale."""

from __future__ import annotations

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.source.model import edits, receiver


class StepBypassesScaler(Rule):
    """An optimizer steps past the scaler, on gradients that are still multiplied by the loss scale."""

    code = "AMP106"
    name = "step-bypasses-scaler"
    summary = "The loss is scaled, and `optimizer.step()` is called past the scaler"
    severity = "error"
    words = ("caler",)

    fix_changes_results = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Optimizers that stepped on scaled gradients, or on divided ones that nobody had looked through."""
        for fault in runs.faults(rank, "applied-scaled"):
            yield runs.seen(
                self, rank, fault, f"{fault.count:,} steps went past the scaler, with gradients "
                f"{runs.smaller(fault.factor)}", severity=runs.grade(fault), role="backward",
                cause="the loss was scaled, and only scaler.step(optimizer) divides its gradients",
                advice="call `scaler.step(optimizer)`, then `scaler.update()` once",
            )  # fmt: skip
        for fault in runs.faults(rank, "applied-unchecked"):
            text = f"{fault.changed:,} of them" if fault.changed else "none of them"
            yield runs.seen(
                self, rank, fault, f"{fault.count:,} steps went past the scaler after unscale_; {text} with "
                "gradients that were not finite", severity=runs.grade(fault), role="unscaled",
                cause="only scaler.step(optimizer) leaves out a step whose gradients have overflowed",
                advice="call `scaler.step(optimizer)`, then `scaler.update()` once",
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A plain step after backwards that are all scaled, under no condition of its own that means no scaler."""
        if file.mentions("inv_scale") or scaling.by_hand(file):
            return  # unscaled by hand
        for one in scaling.passes(file):
            for step in one.step.of("step"):
                backward = self._stepped_too(one, step) or self._scaled_before(one, step)
                if backward is not None:
                    finding = self._finding(file, one, step, backward)
                    if finding is not None:
                        yield finding

    @staticmethod
    def _scaled_before(one: scaling.Pass, step: Effect) -> Effect | None:
        before = [b for b in one.backwards if b.order < step.order and not one.excludes(b, step)]
        if not before or step.through or any(not scaling.is_scaled(b) or b.through == "" for b in before):
            return None
        plain = [b for b in one.backwards if not scaling.is_scaled(b) and not one.excludes(b, step)]
        backward = before[-1]
        if plain or not one.sure(backward, step) or one.chooses_precision(step, backward):
            return None
        # Beside a step through the scaler, what is only named like an optimizer may be something else.
        on = receiver(step.event.call)
        if one.steps and "optimizer" not in one.file.roles.of(on, step.event.unit):
            return None
        return backward if scaling.is_scaler(backward.through, backward.at.unit) else None

    @staticmethod
    def _stepped_too(one: scaling.Pass, step: Effect) -> Effect | None:
        """The backward of a step through the scaler that a plain one of the same optimizer follows in the same pass."""
        for other in one.steps:
            later = other.subject == step.subject and other.order < step.order and one.sure(step, other)
            if not later or step.through or scaling.leaves(other, step) or one.between(other, step, "backward"):
                continue
            before = [b for b in one.scaled if b.order < other.order and one.sure(b, other)]
            if before and scaling.is_scaler(before[-1].through, before[-1].at.unit):
                return before[-1]
        return None

    def _finding(self, file: SourceFile, one: scaling.Pass, step: Effect, backward: Effect) -> Finding | None:
        scaler, optimizer = backward.through, step.subject
        divided = [u for u in one.step.of("unscale") if u.subject == optimizer and one.sure(u, step)]
        if divided and file.mentions("isfinite", "isnan", "isinf", "found_inf"):
            return None
        twice = [s for s in one.steps if s.subject == optimizer and not one.excludes(s, step)]
        effect = "infinite gradients are not left out" if divided else "the gradients are multiplied by the scale"
        effect = f"{scaler}.step({optimizer}) steps it too" if twice else effect
        return self.suspect(
            file, step.event, f"{optimizer}.step() goes past {scaler}: {effect}",
            severity="warning" if divided and not twice else "error",
            cause=f"the loss is scaled by {scaler} at line {backward.line}, and only {scaler}.step({optimizer}) "
            "divides the gradients and leaves out a step that overflowed",
            advice=f"take `{optimizer}.step()` out" if twice else f"call `{scaler}.step({optimizer})`, then "
            f"`{scaler}.update()` once", safe=True,
            edits=self._edits(file, one, step, backward, bool(twice)),
            related=[self.also(file, "scaled", backward.event, file.segment(backward.event.node))],
        )  # fmt: skip

    @staticmethod
    def _edits(file: SourceFile, one: scaling.Pass, step: Effect, backward: Effect, twice: bool) -> list[Edit]:
        if twice:
            return scaling.without(file, step.event)
        scaler, call = backward.through, step.event.call
        unit = step.event.unit
        seen = scaling.visible(scaler, unit) and file.segment(receiver(call) or call) == step.subject
        if unit is not backward.event.unit or call.args or call.keywords or not seen:
            return []
        if not isinstance(step.event.parent, type(step.event.statement)):
            return []
        found = [edits.replace(file, call, f"{scaler}.step({step.subject})")]
        if any(u.through == scaler for u in one.step.of("update")):
            return found
        put = edits.after(file, step.event.statement, f"{scaler}.update()") if len(one.step.optimizers) == 1 else []
        return [*found, *put] if put else []
