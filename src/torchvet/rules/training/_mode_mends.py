"""Edits that put a model into eval mode for a pass over a loader, and back."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.source.model import edits
from torchvet.source.model.units import receiver, terminal
from torchvet.source.model.walking import walk

if TYPE_CHECKING:
    from torchvet.finding import Edit
    from torchvet.rules.training._modes import Moment
    from torchvet.source.model import Event, SourceFile

_LEAVING = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom)


def switched_around(file: SourceFile, one: Moment) -> list[Edit]:
    """`model.eval()` before the loop over batches and `model.train()` behind it; nothing where the loop is left in
    another way, or where parts of the model may be in a mode of their own."""
    over = one.over
    statement = _loop_of(over)
    model = _named_there(file, one)
    if statement is None or not model or any(isinstance(n, _LEAVING) for n in walk(statement)):
        return []
    if any(_last(receiver(e.call)) != _last(ast.parse(model, mode="eval").body) for e in file.calls("eval")):
        return []
    root = model.partition(".")[0]
    if any(isinstance(n, ast.Name) and n.id == root and isinstance(n.ctx, ast.Store) for n in walk(statement)):
        return []
    first, last = edits.before(file, statement, f"{model}.eval()"), edits.after(file, statement, f"{model}.train()")
    return [*first, *last] if first and last else []


def _last(node: ast.expr | None) -> str:
    return terminal(node) if not isinstance(node, ast.Call) else ""


def _loop_of(over: Event) -> ast.stmt | None:
    """The statement that goes over the batches: the loop, or the one with the comprehension."""
    loop = over.loop
    if loop is None:
        return None
    return over.statement if loop.comprehension else loop.node if isinstance(loop.node, ast.For) else None


def _named_there(file: SourceFile, one: Moment) -> str:
    """The model as it is called in the function that goes over the batches; empty where that is not known."""
    func, over = one.event.call.func, one.over
    if not _is_chain(func):
        return ""
    text = file.segment(func)
    root = text.partition(".")[0]
    unit = one.event.unit
    if over.unit is unit:
        return text
    home = unit.home(root)
    if home is not None and home.is_module:
        return text if over.unit.home(root) is home else ""
    if root == unit.self_name() and "." in text:
        on = receiver(over.call) if isinstance(over.node, ast.Call) else None
        same = unit.owner is not None and unit.owner is over.unit.method_class()
        called = isinstance(on, ast.Name) and on.id == over.unit.self_name()
        return f"{over.unit.self_name()}.{text.partition('.')[2]}" if same and called else ""
    given = file.passed(over, unit, root) if root in unit.parameters and root not in unit.bindings else []
    named = bool(given) and _is_chain(given[0]) and file.callee(over) is unit
    return text.replace(root, file.segment(given[0]), 1) if named else ""


def _is_chain(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
