"""AMP117: a loss or gradients are looked at while they are multiplied by the loss scale."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, RankRecording, Recording, Rule, Sequence, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.scaled_values import (
    divided_before,
    divided_penalty,
    read_before_scaling,
    unscaled_here,
)
from torchvet.source.model import Event, keyword, receiver, terminal, walk

_ASKS_FINITE = re.compile(r"isfinite|isnan|isinf|found_inf")
_SAYS_SCALED = re.compile(r"""["'][^"']*scale""")
_BRACES = re.compile(r"\{[^}]*\}")
_READS = {"item", "tolist", "float", "print", "append", "add_scalar"}
_MEASURES = {"norm", "vector_norm", "abs", "mean", "max", "std", "get_total_norm", "_foreach_norm"}


class ScaledValuesInspected(Rule):
    """A loss or gradients are looked at while they are multiplied by the loss scale."""

    code = "AMP117"
    name = "scaled-values-inspected"
    summary = "A norm, a penalty or a log is taken of values that are multiplied by the loss scale"
    severity = "warning"
    words = ("caler",)
    once_a_place = False

    fix_changes_results = True
    # Only what makes a number in a sampled step is seen, and not what is done with it: silence says nothing.
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The loss read in the place of what the scaler gives for it."""
        return unscaled_here(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Numbers that were made of scaled losses and gradients, unless the line asks only whether they are finite."""
        for fault in runs.faults(rank, "loss-read", "norm-read"):
            text = recording.source_line(fault.place) or ""
            what = "a loss that is" if fault.kind == "loss-read" else "gradients that are"
            if fault.scale in (None, 1.0) or _ASKS_FINITE.search(text):
                continue
            yield runs.seen(
                self, rank, fault, f"a number is made of {what} multiplied by the scale "
                f"({runs.times(fault.scale)} at the last look)",
                severity="info" if _SAYS_SCALED.search(_BRACES.sub("", text)) else "warning", role="backward",
                cause="it is read between scaler.scale and what divides it, and the scale changes over the run",
                advice="read the loss before it is scaled" if fault.kind == "loss-read" else
                "call `scaler.unscale_(optimizer)` after the last backward and before gradients are measured",
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Reads of a scaled loss, norms of scaled gradients, penalties on them."""
        if file.mentions("inv_scale", "_scale)") or scaling.by_hand(file):
            return
        yield from self._losses(file)
        yield from self._gradients(file)

    def _losses(self, file: SourceFile) -> Iterator[Finding]:
        for event in file.calls("scale"):
            if not scaling.is_scale_call(event.node, event.unit):
                continue
            by = event.parent
            if isinstance(by, ast.Call) and terminal(by) == "grad" and _keeps_graph(by):
                yield self._penalty(file, event)
            name = scaling.bound_to(event)
            statement = event.statement
            if name.isidentifier() and isinstance(statement, ast.Assign) and statement.value is event.node:
                yield from (self._read(file, event, name, r) for r in self._reads(event, name))

    @staticmethod
    def _reads(event: Event, name: str) -> Iterator[Event]:
        """Where a scaled loss is read as a number, until its name is bound anew."""
        unit = event.unit
        bound = next((b for b in unit.events if b.statement is event.statement and b.node is event.statement), event)
        later = [b.index for b in unit.bindings.get(name, ()) if b.index > bound.index]
        stop = min(later, default=len(unit.events))
        for other in unit.events[bound.index + 1 : stop]:
            if other.excludes(event) or not isinstance(other.node, ast.Call) or "scale" in _division(other):
                continue
            if _says_so(other):
                continue
            kind, on = terminal(other.node), receiver(other.node)
            given = [on] if kind in ("item", "tolist") else other.node.args if kind in _READS else []
            if any(_is_value(g, name) for g in given):
                yield other

    def _gradients(self, file: SourceFile) -> Iterator[Finding]:
        if not file.mentions(".grad"):
            return
        seen: set[int] = set()
        for one in scaling.passes(file):
            for backward in one.scaled:
                end = self._unscaled_after(one, backward)
                if end is None:
                    continue
                found = [e for e in self._window(backward, end) if not e.excludes(backward.event) and self._measures(e)]
                for event in found:
                    if id(event) not in seen:
                        seen.add(id(event))
                        made = divided_before(file, one, found, backward, end)
                        yield self._norm(file, event, backward, end, made)

    @staticmethod
    def _window(backward: Effect, end: Effect) -> list[Event]:
        """The events between two effects, in the unit where both stand, or that calls both."""
        first, last = backward.event, end.event
        if first.unit is not last.unit:
            first, last = backward.at, end.at
        return first.unit.events[first.index + 1 : last.index] if first.unit is last.unit else []

    @staticmethod
    def _unscaled_after(one: scaling.Pass, backward: Effect) -> Effect | None:
        """What divides the gradients of a backward, where nothing before it does."""
        for effect in one.effects:
            ends = effect.kind in ("unscale", "scaler_step", "zero_grad", "step", "update")
            if effect.order > backward.order and ends and not one.excludes(effect, backward):
                right = effect.kind in ("unscale", "scaler_step")
                divided = any(u.order < backward.order for u in one.step.of("unscale"))
                return effect if right and not divided else None
        return None

    def _measures(self, event: Event) -> bool:
        """Whether a call measures the size of a gradient, itself or in a function of the file."""
        node = event.node
        if not isinstance(node, ast.Call):
            return False
        if terminal(node) in _MEASURES:
            on = receiver(node)
            looked = [on, *node.args[:1]] if on is not None else node.args[:1]
            return any(_is_gradient(one, event) for one in looked if one is not None)
        callee = event.unit.file.callee(event)
        words = ("norm", "grad")
        if callee is None or not any(w in callee.name for w in words) or event.unit.file.effects(callee):
            return False
        return any(self._measures(e) for e in callee.events if e.node is not node and isinstance(e.node, ast.Call))

    def _read(self, file: SourceFile, event: Event, name: str, read: Event) -> Finding:
        given = file.segment(event.call.args[0]) if event.call.args else "the loss"
        return self.suspect(
            file, read, f"{name} is multiplied by the loss scale: what is read here is not the loss",
            cause=f"{name} is {file.segment(event.node)}, and the scale is 65,536 at first and changes over the run",
            advice=f"read `{given}` instead" if given != name else "keep the unscaled loss under a name of its own",
            edits=read_before_scaling(file, event, name, read),
            related=[self.also(file, "scaled", event, file.segment(event.node))],
        )  # fmt: skip

    def _penalty(self, file: SourceFile, event: Event) -> Finding:
        scaler = file.segment(receiver(event.call) or event.node)
        return self.suspect(
            file, event, "these gradients are multiplied by the loss scale, and a penalty on them with it",
            cause=f"autograd.grad differentiates {file.segment(event.node)}, and nothing divides what it gives",
            advice=f"divide the gradients by `{scaler}.get_scale()` before the penalty is made of them",
            edits=divided_penalty(file, event),
        )  # fmt: skip

    def _norm(self, file: SourceFile, event: Event, backward: Effect, end: Effect, made: list[Edit]) -> Finding:
        scaler = backward.through or end.through
        return self.suspect(
            file, event, f"{file.segment(event.node)} measures gradients that are multiplied by the loss scale",
            cause=f"the loss is scaled at line {backward.line}, and the gradients are divided only at line {end.line}",
            advice=f"call `{scaler}.unscale_({end.subject})` before, once", edits=made,
            related=[self.also(file, "scaled", backward.event, file.segment(backward.event.node))],
        )  # fmt: skip


def _keeps_graph(call: ast.Call) -> bool:
    """Whether the gradients that `autograd.grad` gives are differentiated again."""
    return scaling.is_constant(keyword(call, "create_graph"), True)


def _says_so(event: Event) -> bool:
    """Whether a text of the statement says that the value is scaled."""
    texts = (n.value for n in walk(event.statement) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return any("scale" in text.lower() for text in texts)


def _division(event: Event) -> str:
    """The text of the right side, where what is read is divided by something."""
    parent = event.parent
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div):
        return ast.unparse(parent.right)
    return ""


def _is_value(node: ast.expr | None, name: str) -> bool:
    """Whether an expression is the value that a name stands for, detached or not."""
    while isinstance(node, ast.Call) and terminal(node) in ("detach", "cpu", "float", "mean", "clone"):
        node = receiver(node)
    return isinstance(node, ast.Name) and node.id == name


def _is_gradient(node: ast.expr, event: Event, depth: int = 0) -> bool:
    """Whether an expression is some tensor's `.grad`, or a list of them, also by a name that stands for such."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return _is_gradient(node.elt, event, depth)
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Attribute) and node.attr == "grad":
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
