"""TRN107: gradients of several passes are summed and the loss is not divided by their number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from torchvet.rules.kit import Edits, Finding, Findings, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.training_loops import Window
from torchvet.source.model import Event, edits, is_call, receiver, terminal
from torchvet.source.model.origins import made_by
from torchvet.source.model.torch_names import ADAPTIVE

_BY_HAND = re.compile(r"\.grad\b")
"""Gradients are read or written: they may be averaged there."""


class AccumulationNotAveraged(loops.LoopRule):
    """Gradients of several passes are summed and the loss is not divided by their number."""

    severity = "warning"
    words = ("backward",)
    fix_changes_results = True

    def in_file(self, file: SourceFile) -> Findings:
        """Accumulation windows whose loss is known not to be divided."""
        for window in loops.windows(file):
            backward = window.backward
            node = backward.event.node
            if not isinstance(node, ast.Call) or node.args or (backward.through and not backward.scaled):
                continue
            loss = loops.loss_of(backward)
            if loss is None or _scaling(loss, backward.event, 0) != "no":
                continue
            if not any(_BY_HAND.search(loops.unit_text(u)) for u in loops.units_of(window.step)):
                yield self._finding(file, window)

    def _finding(self, file: SourceFile, window: Window) -> Finding:
        period, loss = window.passes, window.backward.subject or "the loss"
        made = loops.constructors(loops.subject_of(window.stepped), window.stepped.event.unit)
        adaptive = made is not None and all(file.dotted(c.func).rpartition(".")[2] in ADAPTIVE for c, _ in made)
        return self.suspect(
            file,
            window.backward.event,
            f"gradients of {period} passes are summed, and {loss} is not divided",
            cause=f"each backward adds the gradient of a mean over one micro-batch, so that the step is {period} times "
            "as large as that of one large batch",
            advice=f"divide before backward: `({loss} / {period}).backward()`",
            # An adaptive optimizer divides by the gradients' own size, unless they are clipped before.
            severity="info" if adaptive and not window.step.of("clip") else None,
            edits=self._edits(file, window),
            related=[self.also(file, "stepped", window.stepped.event)],
        )

    @staticmethod
    def _edits(file: SourceFile, window: Window) -> Edits:
        loss = loops.loss_of(window.backward)
        here = window.backward.event.unit is window.step.unit
        if loss is None or not here or not isinstance(window.period, (ast.Name, ast.Attribute, ast.Constant)):
            return []
        text = f"{file.segment(loss)} / {file.segment(window.period)}"
        return [edits.replace(file, loss, text if window.backward.scaled else f"({text})")]


def _scaling(node: ast.AST | None, event: Event, depth: int) -> str:
    """Whether a loss is divided or multiplied on its way to an event: `yes`, `no`, `unknown`."""
    if depth > 6:
        return "unknown"
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Div, ast.Mult)):
            return "yes"
        return _worst(_scaling(node.left, event, depth + 1), _scaling(node.right, event, depth + 1))
    if isinstance(node, ast.Name):
        return _of_name(node.id, event, depth)
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return _scaling(node.value, event, depth + 1)
    return _of_call(node, event, depth) if isinstance(node, ast.Call) else "unknown"


def _of_call(node: ast.Call, event: Event, depth: int) -> str:
    on, roles = receiver(node), event.unit.file.roles
    if terminal(node) == "mean" and on is not None:
        return _scaling(on, event, depth + 1)
    if terminal(node) == "sum" and on is None and node.args:
        return _of_values(node.args[0], event, depth)
    called = roles.of(node.func, event.unit)
    if "criterion" in called:
        return _unless_summed(value for value, _ in made_by(node.func, event.unit))
    own = event.unit.call_of(node)
    if "loss" in roles.of(node, event.unit) and (own is None or event.unit.file.callee(own) is None):
        return _unless_summed([node])
    foreign = "module" in called or (not called and roles.hinted("module", node.func))
    return "no" if foreign and roles.class_of(node.func, event.unit) is None else "unknown"


def _unless_summed(makers: Iterable[ast.expr]) -> str:
    """`no` for a loss that is a mean, as most are by default; `unknown` where its text says that it may be a sum."""
    return "unknown" if any("sum" in ast.unparse(one) for one in makers) else "no"


def _of_name(name: str, event: Event, depth: int) -> str:
    before = event.bindings_before(name)
    if event.unit.home(name) is not event.unit:
        return "unknown"
    answers = []
    for binding in before:
        node = binding.node
        if isinstance(node, ast.AugAssign):
            scaled = isinstance(node.op, (ast.Div, ast.Mult))
            answers.append("yes" if scaled else _scaling(node.value, binding, depth + 1))
            continue
        value, parts = loops.bound_value(binding, name)
        answers += [_scaling(one, at, depth + 2) for one, at in parts]
        if value is None and not parts and isinstance(node, ast.Assign):
            value = node.value  # one of several results of a call
        starts = isinstance(value, ast.Constant) and value.value in (0, 0.0, None)
        if not parts and not starts:
            answers.append(_scaling(value, binding, depth + 1))
    return _worst(*answers)


def _of_values(node: ast.expr, event: Event, depth: int) -> str:
    """`losses.values()`, also where a generator goes over it and takes each as it is."""
    if isinstance(node, (ast.GeneratorExp, ast.ListComp)) and len(node.generators) == 1:
        if terminal(node.elt) != terminal(node.generators[0].target) or not isinstance(node.elt, ast.Name):
            return "unknown"
        node = node.generators[0].iter
    on = receiver(node) if is_call(node, "values") else None
    return _scaling(on, event, depth + 1)


def _worst(*answers: str) -> str:
    return "yes" if "yes" in answers else "unknown" if "unknown" in answers or not answers else "no"
