"""AMP102: gradients are unscaled more than once between two updates of the scaler."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, Recording, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule
from torchvet.rules.precision.fixes.moves import taken_out, together
from torchvet.rules.precision.fixes.scaled_values import divided_at_the_end
from torchvet.rules.shared import order_rule as order
from torchvet.source.model import Event, edits, names_in


class UnscaleRepeated(scaling.ScalerOrderRule, ScalerRule):
    """`scaler.unscale_` runs twice for one optimizer before `scaler.update()`."""

    severity = "error"
    words = ("unscale_",)
    refusals = ("already been called on this optimizer",)
    bad_raises = "unscale_() has already been called"

    def of_refusal(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """A second call that was refused."""
        return Report(
            f"unscale_ is refused: it has been called since the last update ({fault.steps:,} steps had gone well)",
            cause="the scaler notes for each optimizer that its gradients are divided, until update()",
            advice="call `scaler.unscale_(optimizer)` once, after the last backward and before clipping",
            role="unscaled",
        )

    def in_pass(self, one: scaling.ScaledPass) -> Iterator[Finding]:
        """Two calls in one pass, or one in every pass of an accumulation that updates only at its end."""
        for call in one.of("unscale"):
            if scaling.may_catch(call.event):
                continue
            before = self._already(one, call)
            waiting = None if before else self._update_that_waits(one, call)
            if before is not None:
                yield self._again(one, call, before)
            elif waiting is not None:
                yield self._each(one, call, waiting)

    @staticmethod
    def _already(one: scaling.ScaledPass, call: Effect) -> Effect | None:
        """An earlier call of the same pass that still holds, also if only in some passes."""
        for other in one.of("unscale"):
            alike = other.subject == call.subject and other.through == call.through and call.subject
            if not alike or other.order >= call.order or one.between(other, call, "update"):
                continue
            # Every pass that comes to one of the two comes to the other: `if log: unscale_`, and then `unscale_`.
            if one.sure(other, call) or (one.sure(call, other) and not order.leaves(other, call)):
                return other
        return None

    @staticmethod
    def _update_that_waits(one: scaling.ScaledPass, call: Effect) -> Effect | None:
        """The update that ends an accumulation, where a call comes before in every micro-step."""
        updates = [e for e in one.with_(call, "update") if e.through == call.through]
        backwards = [b for b in one.scaled if not one.waits(b, call) and not one.excludes(b, call)]
        if not updates or not backwards or any(not one.waits(u, call) for u in updates):
            return None
        return None if _is_of_the_turn(call) or any(order.counts_alone(call, b) for b in backwards) else updates[0]

    def _again(self, one: scaling.ScaledPass, call: Effect, before: Effect) -> Finding:
        file, twice = one.file, call.event is not before.event
        return self.suspect_at(
            call,
            f"{one.text(call)} is the second for {call.subject} before {call.through}.update(): it raises",
            cause=f"{before.subject} has been unscaled at line {before.line}, and {call.through} refuses a second time",
            advice="unscale once, after the last backward of the step; take the second call out",
            edits=taken_out(file, call.event) if twice else _ahead(file, call.event),
            safe=True,
            related={"unscaled": before},
        )

    def _each(self, one: scaling.ScaledPass, call: Effect, update: Effect) -> Finding:
        text = one.text(call)
        return self.suspect_at(
            call,
            f"{text} runs at every micro-step, {call.through}.update() only at the end: it raises",
            cause=f"the second micro-step finds {call.subject} unscaled already, and more scaled gradients are added "
            "to those that were divided",
            advice=f"move `{text}`, and what needs true gradients, under the condition of `{call.through}.step`",
            edits=divided_at_the_end(one, call),
            related={"updated": update},
        )


def _is_of_the_turn(call: Effect) -> bool:
    """Whether each turn of the loop binds the optimizer, so that it is another one each time."""
    bound = call.at.unit.bindings.get(call.subject.partition(".")[0], ())
    return call.at.loop is not None and any(b.loop is call.at.loop for b in bound)


def _ahead(file: SourceFile, event: Event) -> list[Edit]:
    """A call that a method makes each time it is called, made once before the first of its calls."""
    helper = event.unit
    callers = sorted(file.callers(helper), key=lambda c: c.index)
    if len(callers) < 2 or any(c.unit is not callers[0].unit for c in callers):
        return []
    there = callers[0].unit
    alike = helper.owner is not None and there.owner is helper.owner and helper.self_name() == there.self_name()
    always = all(e.loop is None and not e.context.arms for e in (event, *callers))
    if not alike or not always or not isinstance(event.parent, ast.Expr):
        return []
    if names_in(event.node) != {helper.self_name()}:
        return []
    return together(edits.before(file, callers[0].statement, file.segment(event.node)), taken_out(file, event))
