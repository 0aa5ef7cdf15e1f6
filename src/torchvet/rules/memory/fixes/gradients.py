"""Edits for gradients that `backward(create_graph=True)` has left: freed once they have been read."""

from __future__ import annotations

import ast
from typing import TypeGuard

from torchvet.rules.kit import Edit, Iterable, SourceFile
from torchvet.source.model import Event, Unit, blocks, calls_in, edits, is_attribute, is_call, is_name, value_bound
from torchvet.source.syntax import given, receiver, terminal
from torchvet.source.walking import walk


def leafs_gradient_freed(file: SourceFile, event: Event, leaf: str) -> list[Edit]:
    """`leaf.grad = None` after the last statement that reads `leaf.grad`: what was computed of it keeps its graph."""
    after = _after(event)
    reads = [s for s in after if any(_is_gradient(n) and is_name(n.value, leaf) for n in walk(s))]
    # None also where nothing reads it: then it may be read wherever nobody sees.
    last = _last_of(reads, after)
    if last is None or _goes_elsewhere(event.unit, leaf, after[after.index(last) + 1 :]):
        return []
    return edits.after(file, last, f"{leaf}.grad = None")


def copys_gradients_freed(file: SourceFile, event: Event) -> list[Edit]:
    """`model.zero_grad()` after the last statement that goes over the parameters' gradients of a model which is made
    in the same block, anew each time."""
    after = _after(event)
    last = _last_of([s for s in after if _gone_over(s)], after)
    names = {name for s in after for name in _gone_over(s)}
    if last is None or len(names) != 1:
        return []
    (model,) = names
    # Behind the last loop over parameters a single gradient may still be read.
    others = any(_is_gradient(n) for s in after[after.index(last) + 1 :] for n in walk(s))
    if others or not _is_made_here(file, event, model) or _goes_elsewhere(event.unit, model, []):
        return []
    return edits.after(file, last, f"{model}.zero_grad()")


def is_freed(event: Event) -> bool:
    """Whether the gradients that a later statement of the block goes over are cleared behind it."""
    after = _after(event)
    names = {name for s in after for name in _gone_over(s)}
    for statement in after:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if is_call(call, "zero_grad") and not call.args and not call.keywords:
            names.discard(terminal(receiver(call)))
    return not names and any(_gone_over(s) for s in after)


def _is_made_here(file: SourceFile, event: Event, name: str) -> bool:
    """Whether a function binds a name once, before an event and as often as it, to a model that nobody else has."""
    bound = event.unit.bindings.get(name, ())
    # Made outside of the loop it keeps its gradients from turn to turn, which may be meant.
    if event.unit.is_module or len(bound) != 1 or bound[0].loop is not event.loop or bound[0].index >= event.index:
        return False
    value = value_bound(bound[0].node, name)
    if not isinstance(value, ast.Call):
        return False
    made = file.roles.class_named(value.func, event.unit) is not None
    return made or terminal(value) == "deepcopy" or file.dotted(value.func).startswith("torch.nn.")


def _after(event: Event) -> list[ast.stmt]:
    """The statements after an event's in its block."""
    block = blocks.block_of(event.unit.node, event.statement)
    return block[block.index(event.statement) + 1 :] if block else []


def _last_of(reads: list[ast.stmt], after: list[ast.stmt]) -> ast.stmt | None:
    """The last statement that reads gradients, where every pass that comes there goes on behind it."""
    if not reads:
        return None
    last = max(reads, key=after.index)
    leaving = (ast.Return, ast.Raise, ast.Continue, ast.Break, ast.Yield, ast.Await)
    until = after[: after.index(last) + 1]
    return None if any(isinstance(n, leaving) for s in until for n in walk(s)) else last


def _is_gradient(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return is_attribute(node, "grad")


def _gone_over(statement: ast.stmt) -> list[str]:
    """The models whose parameters a statement goes over to read their gradients; an empty name for what else reads
    some."""
    heads = [n for n in walk(statement) if isinstance(n, (ast.For, ast.comprehension))]
    owners: dict[str, str] = {}
    for head in heads:
        on = receiver(head.iter) if is_call(head.iter, "parameters") else None
        if isinstance(head.target, ast.Name):
            owners[head.target.id] = on.id if isinstance(on, ast.Name) else ""
    read = [n.value for n in walk(statement) if _is_gradient(n)]
    # The empty name is in the answer on purpose: with it there are two names, and no edit.
    return [owners.get(one.id, "") if isinstance(one, ast.Name) else "" for one in read]


def _goes_elsewhere(unit: Unit, name: str, later: list[ast.stmt]) -> bool:
    """Whether a name is another's as well (bound to it, returned, put into something), or is given to a call later, so
    that its gradients may be read where that is not seen."""
    handed = (one for node in walk(unit.node) for one in _handed_on(node))
    if any(is_name(one, name) and isinstance(one.ctx, ast.Load) for one in handed):
        return True
    return any(is_name(one, name) for s in later for call in calls_in(s) for one in given(call))


def _handed_on(node: ast.AST) -> Iterable[ast.AST | None]:
    """What a node binds, returns, or puts into something, as it is."""
    if isinstance(node, (ast.Assign, ast.Return, ast.Yield, ast.NamedExpr)):
        return [node.value]
    if is_call(node, "append", "add", "extend", "put", "setattr", "partial"):
        return node.args
    return ast.iter_child_nodes(node) if isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.Set)) else ()
