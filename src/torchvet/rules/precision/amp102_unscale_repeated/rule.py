"""AMP102: gradients are unscaled more than once between two updates of the scaler."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.scaled_values import divided_at_the_end
from torchvet.source.model import Event, edits, walk


class UnscaleRepeated(Rule):
    """Gradients are unscaled more than once between two updates of the scaler."""

    code = "AMP102"
    name = "unscale-repeated"
    summary = "`scaler.unscale_` runs twice for one optimizer before `scaler.update()`"
    severity = "error"
    words = ("unscale_",)

    bad_raises = "unscale_() has already been called"
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """A second call that was refused."""
        for fault, severity in runs.refused(rank, "already been called on this optimizer"):
            yield runs.seen(
                self, rank, fault, f"unscale_ is refused: it has been called since the last update "
                f"({fault.steps:,} steps had gone well)", severity=severity, role="unscaled",
                cause="the scaler notes for each optimizer that its gradients are divided, until update()",
                advice="call `scaler.unscale_(optimizer)` once, after the last backward and before clipping",
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Two calls in one pass, or one in every pass of an accumulation that updates only at its end."""
        for one in scaling.passes(file):
            for call in one.step.of("unscale"):
                before = self._already(one, call)
                waiting = None if before else self._update_that_waits(one, call)
                if (before or waiting) and not scaling.may_catch(call.event):
                    yield self._again(file, call, before) if before else self._each(file, one, call, waiting)

    @staticmethod
    def _already(one: scaling.Pass, call: Effect) -> Effect | None:
        """An earlier call of the same pass that holds still, be it in some passes only."""
        for other in one.step.of("unscale"):
            alike = other.subject == call.subject and other.through == call.through and call.subject
            if not alike or other.order >= call.order or one.between(other, call, "update"):
                continue
            # Every pass that comes to one of the two comes to the other: `if log: unscale_`, and then `unscale_`.
            if one.sure(other, call) or (one.sure(call, other) and not scaling.leaves(other, call)):
                return other
        return None

    @staticmethod
    def _update_that_waits(one: scaling.Pass, call: Effect) -> Effect | None:
        """The update that ends an accumulation, where a call comes before in every micro-step."""
        updates = [e for e in one.step.of("update") if e.through == call.through and not one.excludes(e, call)]
        backwards = [b for b in one.scaled if not one.waits(b, call) and not one.excludes(b, call)]
        if not updates or not backwards or any(not one.waits(u, call) for u in updates):
            return None
        head = call.subject.partition(".")[0]
        loop = call.at.loop
        own = head and loop is not None and any(b.loop is loop for b in call.at.unit.bindings.get(head, ()))
        waits = any(scaling.counts_alone(call, b) for b in backwards)
        return None if own or waits else updates[0]

    def _again(self, file: SourceFile, call: Effect, before: Effect) -> Finding:
        text = file.segment(call.event.node)
        return self.suspect(
            file, call.event, f"{text} is the second for {call.subject} before {call.through}.update(): it raises",
            cause=f"{before.subject} has been unscaled at line {before.line}, and {call.through} refuses a second time",
            advice="unscale once, after the last backward of the step; take the second call out",
            edits=scaling.without(file, call.event) if call.event is not before.event else _ahead(file, call.event),
            safe=True,
            related=[self.also(file, "unscaled", before.event, file.segment(before.event.node))],
        )  # fmt: skip

    def _each(self, file: SourceFile, one: scaling.Pass, call: Effect, update: Effect | None) -> Finding:
        assert update is not None
        text = file.segment(call.event.node)
        return self.suspect(
            file, call.event, f"{text} runs at every micro-step, {call.through}.update() only at the end: it raises",
            cause=f"the second micro-step finds {call.subject} unscaled already, and more scaled gradients are added "
            "to those that were divided",
            advice=f"move `{text}`, and what needs true gradients, under the condition of `{call.through}.step`",
            edits=divided_at_the_end(file, one, call),
            related=[self.also(file, "updated", update.event, file.segment(update.event.node))],
        )  # fmt: skip


def _ahead(file: SourceFile, event: Event) -> list[Edit]:
    """A call that a method makes each time it is called, made once before the first of its calls."""
    helper = event.unit
    callers = sorted(file.callers(helper), key=lambda c: c.index)
    units = {id(c.unit) for c in callers}
    if len(callers) < 2 or len(units) != 1 or any(c.loop is not None or c.context.arms for c in callers):
        return []
    there = callers[0].unit
    alike = helper.owner is not None and there.owner is helper.owner and helper.self_name() == there.self_name()
    names = {n.id for n in walk(event.node) if isinstance(n, ast.Name)}
    lone = isinstance(event.parent, ast.Expr) and event.loop is None and not event.context.arms
    taken = scaling.without(file, event) if alike and lone and names == {helper.self_name()} else []
    put = edits.before(file, callers[0].statement, file.segment(event.node)) if taken else []
    return [*put, *taken] if put else []
