"""Edits that read numbers of many parameters from the device at once, in the place of one wait for each."""

from __future__ import annotations

import ast
from typing import TypeGuard

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.source.model import Event, Loop, edits, is_call, is_name, name_set, receiver, targets_of, terminal, walk

_TO_ONE = name_set("norm mean sum max min std var")
"""Methods that give one number for a tensor where they are given no dimension."""


def read_once(file: SourceFile, event: Event, loop: Loop) -> Sequence[Edit]:
    """`total += p.grad.norm().item()` without the wait, the total read after the loop; a list of such numbers read as
    one tensor."""
    if terminal(event.node) != "item" or event.call.args or event.call.lineno != event.call.end_lineno:
        return ()
    if isinstance(loop.node, ast.ListComp):
        return _listed(file, event, loop.node)
    return _added(file, event, loop)


def _is_one_number(node: ast.expr | None) -> TypeGuard[ast.Call]:
    """Whether a call surely gives a tensor without dimensions: `p.grad.norm()`, `p.norm(2)`, `p.abs().max()`."""
    if not is_call(node, *_TO_ONE) or node.keywords or receiver(node) is None:
        return False
    order = len(node.args) == 1 and isinstance(node.args[0], ast.Constant)
    return not node.args or (order and terminal(node) == "norm")


def _tensor(file: SourceFile, event: Event, on: ast.expr) -> str:
    """What was read as a number, as a tensor without a graph."""
    text = file.segment(on)
    apart = any(isinstance(n, ast.Attribute) and n.attr in ("grad", "data", "detach") for n in walk(on))
    return text if apart or file.gradients.enabled(event) == "no" else f"{text}.detach()"


def _listed(file: SourceFile, event: Event, whole: ast.ListComp) -> Sequence[Edit]:
    """`[p.norm().item() for p in model.parameters()]`: a model has at least one, and a stack of none is an error."""
    on, names = receiver(event.call), {what: name for name, what in file.imports.names.items()}
    head = whole.generators[0]
    if whole.elt is not event.node or not _is_one_number(on) or len(whole.generators) != 1 or head.ifs:
        return ()
    if "torch" not in names or whole.lineno != whole.end_lineno:
        return ()
    start, end = edits.start_of(file, whole), edits.end_of(file, whole)
    stack, tensors = edits.insert(file, start, f"{names['torch']}.stack("), _tensor(file, event, on)
    return [stack, edits.replace(file, event.call, tensors), edits.insert(file, end, ").tolist()")]


def _added(file: SourceFile, event: Event, loop: Loop) -> Sequence[Edit]:
    """`total += …item() ** 2` in the loop's own body, where nothing else in it reads the total."""
    on, head, unit = receiver(event.call), loop.node, event.unit
    match event.statement:
        case ast.AugAssign(ast.Name(name), ast.Add(), value) if unit.home(name) is unit:
            own = _is_arithmetic(value, event.node) and _begins_at_zero(event, name, loop)
        case _:
            return ()
    if not own or not isinstance(head, ast.For) or head.orelse or not _is_one_number(on):
        return ()
    put = edits.after(file, head, f"{name} = float({name})")
    alone = sum(is_name(n, name) for n in walk(head)) == 1
    return [edits.replace(file, event.call, _tensor(file, event, on)), *put] if alone and put else ()


def _is_arithmetic(node: ast.expr, read: ast.AST) -> bool:
    """Whether an expression is the number read and constants alone."""
    within = {id(n) for n in walk(read)}
    rest = (n for n in walk(node) if id(n) not in within)
    return all(isinstance(n, (ast.BinOp, ast.Constant, ast.operator)) for n in rest)


def _begins_at_zero(event: Event, name: str, loop: Loop) -> bool:
    """Whether the total is a number before the loop: `total = 0.0` right before it, in the same block."""
    before = [e for e in event.unit.bindings.get(name, ()) if e.index < event.index and not e.inside(loop)]
    if not before or before[-1].loop is not loop.parent or before[-1].line >= loop.first:
        return False
    node, arms = before[-1].node, before[-1].context.arms
    number = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    lone = number and all(isinstance(target, ast.Name) for target in targets_of(node))
    return lone and arms == event.context.arms[: len(arms)]
