"""Edits that take a softmax, or a sigmoid, out of what a loss is given: the function's call, or the module."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, SourceFile
from torchvet.rules.shared.normalised import is_number
from torchvet.rules.training.fixes.sequentials import without_last
from torchvet.source.model import Event, edits, operand, terminal
from torchvet.source.model.origins import modules_made

_FUNCTIONS = ("softmax", "sigmoid")
_MODULES = ("torch.nn.Softmax", "torch.nn.Sigmoid")


def not_normalised(file: SourceFile, line: int) -> Edits:
    """What is normalised on a line, as it is before: where one call does it."""
    events = [e for e in file.unit_at(line).events if e.line == line and isinstance(e.node, ast.Call)]
    functions = [e for e in events if terminal(e.node) in _FUNCTIONS and not modules_made(e)]
    if functions:
        given = _raw(file, functions[0].call) if len(functions) == 1 else None
        return [edits.replace(file, functions[0].call, file.segment(given))] if given is not None else ()
    found = [made for e in events if (made := _of_module(file, e))]
    return found[0] if len(found) == 1 else ()


def _raw(file: SourceFile, call: ast.Call) -> ast.expr | None:
    """What a softmax or sigmoid, written as a function or a method on one line, is applied to. `scores.softmax(1)` is a
    method; what is given something other than a dimension is a module or a function of the program's own."""
    method = file.dotted(call.func).startswith("torch.") or all(is_number(a) for a in call.args)
    return operand(file, call) if method and call.lineno == call.end_lineno else None


def _of_module(file: SourceFile, event: Event) -> Edits:
    """`self.softmax(x)` as `x`; `self.head(x)`, of a Sequential that ends with a softmax, without that."""
    made = modules_made(event)
    if len(made) != 1:
        return []
    dotted, call = file.dotted(made[0].func), event.call
    if dotted in _MODULES:
        alone = len(call.args) == 1 and not call.keywords and call.lineno == call.end_lineno
        return [edits.replace(file, call, file.segment(call.args[0]))] if alone else []
    return without_last(file, made[0], _MODULES)
