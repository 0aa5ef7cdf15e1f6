"""Edits that put a model into eval mode for a pass over a loader, and back."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, SourceFile
from torchvet.rules.training._modes import Moment
from torchvet.source.model import Event, Unit, edits, is_name, names_bound, receiver, root_of, terminal, walk

_LEAVING = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom)


def switched_around(file: SourceFile, one: Moment) -> Edits:
    """`model.eval()` before the loop over batches and `model.train()` behind it; nothing where the loop is left in
    another way, or where parts of the model may be in a mode of their own."""
    statement, model = _loop_of(one.over), _named_there(file, one)
    if statement is None or not model or any(isinstance(n, _LEAVING) for n in walk(statement)):
        return []
    # A part that is switched alone may be meant to stay in eval mode.
    if any(_last(receiver(e.call)) != model.rpartition(".")[2] for e in file.calls("eval")):
        return []
    if model.partition(".")[0] in names_bound([statement]):
        return []
    first, last = edits.before(file, statement, f"{model}.eval()"), edits.after(file, statement, f"{model}.train()")
    return [*first, *last] if first and last else []


def switched_back(file: SourceFile, one: Moment, backward: Event) -> Edits:
    """`model.train()` where a training pass begins: before the loop over its batches, or as the first thing in each
    pass of a loop that evaluates as well. Nothing where the model is not known there by the same name."""
    unit, loop = backward.unit, backward.loop
    model = _known_in(file, one, unit)
    if not model:
        return []
    text = f"{model}.train()"
    here = one.at.unit is unit
    if loop is not None and here and one.at.inside(loop):
        return [] if loop.comprehension else edits.before(file, _first_of(loop.node), text)
    # Once before the whole training pass is enough: the mode lasts until it is switched.
    while loop is not None and loop.parent is not None and not (here and one.at.inside(loop.parent)):
        loop = loop.parent
    if loop is not None and loop.comprehension:
        return []
    first = loop.node if loop is not None else _first_of(unit.node)
    return edits.before(file, first, text) if isinstance(first, ast.stmt) else []


def _known_in(file: SourceFile, one: Moment, unit: Unit) -> str:
    """What a model that is switched is called in another function; empty where that is not known."""
    on, own, caller = receiver(one.event.call), one.event.unit, one.at.unit
    if on is None or not root_of(on):
        return ""
    if _is_known_as(file.segment(on), one.event, unit):
        return file.segment(on)
    # `test(model, loader)` and `train(model, loader)` of one function, which gives both the same.
    there = _given(file, one.at, own, file.segment(on))
    if not there or caller is unit:
        return there
    calls = [e for e in caller.events if isinstance(e.node, ast.Call) and file.callee(e) is unit]
    names = [{p for p in unit.parameters if _given(file, e, unit, p) == there} for e in calls]
    known = set.intersection(*names) if names else set()
    return known.pop() if len(known) == 1 else ""


def _given(file: SourceFile, call: Event, unit: Unit, name: str) -> str:
    """What the caller of a function calls what is `name` in it, by way of a parameter; empty where it is none."""
    root, dot, rest = name.partition(".")
    if root not in unit.parameters or root in unit.bindings or file.callee(call) is not unit:
        return ""
    given = file.passed(call, unit, root)
    return file.segment(given[0]) + dot + rest if given and root_of(given[0]) else ""


def _first_of(node: ast.AST) -> ast.stmt:
    """The first statement of a loop or a function that is no docstring."""
    body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
    quoted = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1] if quoted and len(body) > 1 else body[0]


def _is_known_as(name: str, switching: Event, unit: Unit) -> bool:
    """Whether a model is the same by its name in another function: an attribute of one object, or a global name."""
    own, root = switching.unit, name.partition(".")[0]
    if own is unit:
        return True
    home = own.home(root)
    if home is not None and home.is_module:
        return unit.home(root) is home
    same = own.owner is not None and own.owner is unit.owner
    return same and root == own.self_name() == unit.self_name() and "." in name


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
    func, over, unit = one.event.call.func, one.over, one.event.unit
    root, text = root_of(func), file.segment(func)
    if not root or over.unit is unit:
        return text if root else ""
    home = unit.home(root)
    if home is not None and home.is_module:
        return text if over.unit.home(root) is home else ""
    if root == unit.self_name() and "." in text:
        own = _own_name(over, unit)
        return f"{own}.{text.partition('.')[2]}" if own else ""
    return _given(file, over, unit, text)


def _own_name(over: Event, unit: Unit) -> str:
    """What a method calls its object where it calls another method of that; empty where it does not."""
    own = over.unit.self_name()
    same = unit.owner is not None and unit.owner is over.unit.method_class()
    return own if same and is_name(receiver(over.call), own) else ""
