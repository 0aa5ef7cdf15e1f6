"""Edits for gradients that `backward(create_graph=True)` has left: freed once they have been read."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, SourceFile
from torchvet.source.model import Event, Unit, blocks, edits, is_call, is_name, receiver, terminal, walk


def leaf_let_go(file: SourceFile, event: Event, leaf: str) -> list[Edit]:
    """`leaf.grad = None` after the last statement that reads `leaf.grad`: what was computed of it keeps its graph."""
    after = _after(event)
    reads = [s for s in after if any(_is_gradient_of(n, leaf) for n in walk(s))]
    last = _last_of(reads, after)
    if last is None or _goes_elsewhere(event.unit, leaf, after[after.index(last) + 1 :]):
        return []
    return edits.after(file, last, f"{leaf}.grad = None")


def copy_let_go(file: SourceFile, event: Event) -> list[Edit]:
    """`model.zero_grad()` after the last statement that goes over the parameters' gradients of a model which is made
    in the same block, anew each time."""
    after = _after(event)
    names = {name for s in after for name in _gone_over(s)}
    last = _last_of([s for s in after if _gone_over(s)], after)
    if last is None or len(names) != 1:
        return []
    (model,) = names
    bound = event.unit.bindings.get(model, ())
    made = bound[0].node if len(bound) == 1 and bound[0].loop is event.loop and bound[0].index < event.index else None
    fresh = isinstance(made, ast.Assign) and made.targets[0].__class__ is ast.Name and _is_new(file, made.value, event)
    others = [s for s in after[after.index(last) + 1 :] if any(_is_gradient(n) for n in walk(s))]
    if not fresh or others or event.unit.is_module or _goes_elsewhere(event.unit, model, []):
        return []
    return edits.after(file, last, f"{model}.zero_grad()")


def is_let_go(event: Event) -> bool:
    """Whether the gradients that a later statement of the block goes over are cleared behind it."""
    after = _after(event)
    names = {name for s in after for name in _gone_over(s)}
    for statement in after:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if is_call(call, "zero_grad") and not call.args and not call.keywords:
            names.discard(terminal(receiver(call)))
    return not names and any(_gone_over(s) for s in after)


def _is_new(file: SourceFile, value: ast.expr, event: Event) -> bool:
    """Whether a call makes a model that nobody else has."""
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


def _is_gradient(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "grad"


def _is_gradient_of(node: ast.AST, name: str) -> bool:
    return _is_gradient(node) and is_name(node.value, name)  # type: ignore[attr-defined]


def _gone_over(statement: ast.stmt) -> list[str]:
    """The models whose parameters a statement goes over to read their gradients; an empty name for what else reads
    some."""
    heads = [n for n in walk(statement) if isinstance(n, (ast.For, ast.comprehension))]
    owners: dict[str, str] = {}
    for head in heads:
        on = receiver(head.iter) if is_call(head.iter, "parameters") else None
        if isinstance(head.target, ast.Name):
            owners[head.target.id] = on.id if isinstance(on, ast.Name) else ""
    read = [n.value for n in walk(statement) if isinstance(n, ast.Attribute) and n.attr == "grad"]
    return [owners.get(one.id, "") if isinstance(one, ast.Name) else "" for one in read]


def _goes_elsewhere(unit: Unit, name: str, later: list[ast.stmt]) -> bool:
    """Whether a name is another's as well (bound to it, returned, put into something), or is given to a call later, so
    that its gradients may be read where that is not seen."""
    for node in walk(unit.node):
        parts: list[ast.AST | None] = []
        if isinstance(node, (ast.Assign, ast.Return, ast.Yield, ast.NamedExpr)):
            parts = [node.value]
        elif isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.Set)):
            parts = [*ast.iter_child_nodes(node)]
        if any(is_name(p, name) and isinstance(p.ctx, ast.Load) for p in parts):
            return True
        kept = is_call(node, "append", "add", "extend", "put", "setattr", "partial")
        if kept and any(is_name(p, name) for p in node.args):  # type: ignore[attr-defined]
            return True
    given = (n for s in later for n in walk(s) if isinstance(n, ast.Call))
    return any(is_name(a, name) for c in given for a in (*c.args, *(k.value for k in c.keywords)))
