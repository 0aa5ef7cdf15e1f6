"""AMP117: a loss or gradients are looked at while they are multiplied by the loss scale."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, Recording, Sequence, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, times
from torchvet.rules.precision.fixes import scaled_values as fixes
from torchvet.source.model import Event, is_attribute, is_call, is_name, is_set, receiver, terminal, under_methods, walk

_ASKS_FINITE = re.compile(r"isfinite|isnan|isinf|found_inf")
_SAYS_SCALED = re.compile(r"""["'][^"']*scale""")
_BRACES = re.compile(r"\{[^}]*\}")
_NUMBERS = ("item", "tolist")
_READS = ("float", "print", "append", "add_scalar")
_SAME_VALUE = ("detach", "cpu", "float", "mean", "clone")
_MEASURES = ("norm", "vector_norm", "abs", "mean", "max", "std", "get_total_norm", "_foreach_norm")


class ScaledValuesInspected(ScalerRule):
    """A norm, a penalty or a log is taken of values that are multiplied by the loss scale."""

    severity = "warning"
    words = ("caler",)
    once_a_place = False
    kinds = ("loss-read", "norm-read")
    # Only what makes a number in a sampled step is seen, and not what is done with it: silence says nothing.
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The loss read in the place of what the scaler gives for it."""
        return fixes.unscaled_here(file, finding)

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report | None:
        """Numbers that were made of scaled losses and gradients, unless the line asks only whether they are finite."""
        text, loss = recording.source_line(fault.place) or "", fault.kind == "loss-read"
        # A line that only asks for `isfinite` gets the same answer whatever the scale.
        if fault.scale in (None, 1.0) or _ASKS_FINITE.search(text):
            return None
        return Report(
            f"a number is made of {'a loss that is' if loss else 'gradients that are'} multiplied by the scale "
            f"({times(fault.scale)} at the last look)",
            severity="info" if _SAYS_SCALED.search(_BRACES.sub("", text)) else "warning",
            cause="it is read between scaler.scale and what divides it, and the scale changes over the run",
            advice="read the loss before it is scaled"
            if loss
            else "call `scaler.unscale_(optimizer)` after the last backward and before gradients are measured",
            role="backward",
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Reads of a scaled loss, norms of scaled gradients, penalties on them."""
        if file.mentions("inv_scale", "_scale)") or scaling.by_hand(file):
            return
        for event in scaling.scale_calls(file):
            yield from self._losses(file, event)
        seen: set[int] = set()
        for one in scaling.scaled_passes(file) if file.mentions(".grad") else ():
            for backward, end, found in _measured(one):
                for event in found:
                    if id(event) not in seen:
                        seen.add(id(event))
                        yield self._norm(event, backward, end, fixes.divided_before(one, found, backward, end))

    def _losses(self, file: SourceFile, event: Event) -> Iterator[Finding]:
        by, statement, name = event.parent, event.statement, scaling.bound_to(event)
        # Only gradients that are differentiated again make a penalty.
        if is_call(by, "grad") and is_set(by, "create_graph"):
            yield self._penalty(file, event)
        if name.isidentifier() and isinstance(statement, ast.Assign) and statement.value is event.node:
            yield from (self._read(file, event, name, read) for read in _reads(event, name))

    def _read(self, file: SourceFile, event: Event, name: str, read: Event) -> Finding:
        given = file.segment(event.call.args[0]) if event.call.args else "the loss"
        return self.suspect_at(
            read,
            f"{name} is multiplied by the loss scale: what is read here is not the loss",
            cause=f"{name} is {file.segment(event.node)}, and the scale is 65,536 at first and changes over the run",
            advice=f"read `{given}` instead" if given != name else "keep the unscaled loss under a name of its own",
            edits=fixes.read_before_scaling(file, event, name, read),
            related={"scaled": event},
        )

    def _penalty(self, file: SourceFile, event: Event) -> Finding:
        scaler = file.segment(receiver(event.call) or event.node)
        return self.suspect_at(
            event,
            "these gradients are multiplied by the loss scale, and a penalty on them with it",
            cause=f"autograd.grad differentiates {file.segment(event.node)}, and nothing divides what it gives",
            advice=f"divide the gradients by `{scaler}.get_scale()` before the penalty is made of them",
            edits=fixes.divided_penalty(file, event),
        )

    def _norm(self, event: Event, backward: Effect, end: Effect, made: list[Edit]) -> Finding:
        return self.suspect_at(
            event,
            f"{event.unit.file.segment(event.node)} measures gradients that are multiplied by the loss scale",
            cause=f"the loss is scaled at line {backward.line}, and the gradients are divided only at line {end.line}",
            advice=f"call `{backward.through or end.through}.unscale_({end.subject})` before, once",
            edits=made,
            related={"scaled": backward},
        )


def _reads(event: Event, name: str) -> Iterator[Event]:
    """Where a scaled loss is read as a number, until its name is bound anew."""
    unit = event.unit
    bound = next((b for b in unit.events if b.statement is event.statement and b.node is event.statement), event)
    later = [b.index for b in unit.bindings.get(name, ()) if b.index > bound.index]
    for other in unit.events[bound.index + 1 : min(later, default=len(unit.events))]:
        if not isinstance(other.node, ast.Call) or other.excludes(event) or _minds_scale(other):
            continue
        if any(is_name(under_methods(read, _SAME_VALUE), name) for read in _read_by(other.call)):
            yield other


def _read_by(call: ast.Call) -> list[ast.expr | None]:
    """The values that a call reads as numbers."""
    if terminal(call) in _NUMBERS:
        return [receiver(call)]
    return [*call.args] if terminal(call) in _READS else []


def _minds_scale(event: Event) -> bool:
    """Whether a text of the statement says that the value is scaled, or the value is divided by the scale."""
    parent = event.parent
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and "scale" in ast.unparse(parent.right):
        return True
    texts = (n.value for n in walk(event.statement) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return any("scale" in text.lower() for text in texts)


def _measured(one: scaling.ScaledPass) -> Iterator[tuple[Effect, Effect, list[Event]]]:
    """Scaled backwards, what divides their gradients, and the calls that measure these in between."""
    for backward in one.scaled:
        end = _unscaled_after(one, backward)
        if end is not None:
            window = _window(backward, end)
            yield backward, end, [e for e in window if not e.excludes(backward.event) and _measures(e)]


def _window(backward: Effect, end: Effect) -> list[Event]:
    """The events between two effects, in the unit where both stand, or that calls both."""
    first, last = backward.event, end.event
    if first.unit is not last.unit:
        first, last = backward.at, end.at
    return first.unit.events[first.index + 1 : last.index] if first.unit is last.unit else []


def _unscaled_after(one: scaling.ScaledPass, backward: Effect) -> Effect | None:
    """What divides the gradients of a backward, where nothing before it does."""
    end = next(iter(one.after(backward, "unscale", "scaler_step", "zero_grad", "step", "update")), None)
    divided = any(u.order < backward.order for u in one.of("unscale"))
    return end if end is not None and end.kind in ("unscale", "scaler_step") and not divided else None


def _measures(event: Event) -> bool:
    """Whether a call measures the size of a gradient, itself or in a function of the file."""
    if not isinstance(event.node, ast.Call):
        return False
    if terminal(event.node) in _MEASURES:
        on = receiver(event.call)
        looked = [*([on] if on is not None else []), *event.call.args[:1]]
        return any(_is_gradient(one, event) for one in looked)
    callee = event.unit.file.callee(event)
    # A helper that steps or clips by itself is judged as a part of the pass, not as something that measures.
    if callee is None or not any(w in callee.name for w in ("norm", "grad")) or event.unit.file.effects(callee):
        return False
    return any(e.node is not event.node and _measures(e) for e in callee.events)


def _is_gradient(node: ast.expr, event: Event, depth: int = 0) -> bool:
    """Whether an expression is some tensor's `.grad`, or a list of them, also by a name that stands for such."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return _is_gradient(node.elt, event, depth)
    while isinstance(node, (ast.Call, ast.Attribute)):
        if is_attribute(node, "grad"):
            return True
        on = receiver(node) if isinstance(node, ast.Call) else node.value
        if on is None:
            return False
        node = on
    if not isinstance(node, ast.Name) or depth > 2:
        return False
    bound = event.unit.bindings.get(node.id, ())
    given = [getattr(b.node, "iter", None) or getattr(b.node, "value", None) for b in bound]
    return bool(given) and all(g is not None and _is_gradient(g, event, depth + 1) for g in given)
