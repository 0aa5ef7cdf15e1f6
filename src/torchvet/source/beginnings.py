"""Tells a value that starts a holder from one that empties it: `if not hasattr(x, "rows"): x.rows = []`."""

from __future__ import annotations

import ast

from torchvet.source import syntax
from torchvet.source.module import Module
from torchvet.source.touches import Touch

_MISSING = {"AttributeError", "KeyError", "NameError", "LookupError", "IndexError"}


def starts(module: Module, touch: Touch) -> bool:
    """Whether a statement that gives a holder a fresh value is come to only where there is none yet, or an empty one:
    it stands under a test of that, or where the reading of it failed."""
    line = touch.node.lineno
    for guard, scope in module.guards:
        if scope is not touch.scope or isinstance(guard, ast.IfExp):
            continue
        if _holds(guard.body, line) and _is_absent(guard.test, touch, there=False):
            return True
        if _holds(guard.orelse, line) and _is_absent(guard.test, touch, there=True):
            return True
    within = touch.scope.node or module.tree
    handlers = (h for n in ast.walk(within) if isinstance(n, ast.Try) for h in n.handlers)
    return any(_holds(h.body, line) and h.type is not None and _of_missing(h.type) for h in handlers)


def _holds(block: list[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or block[-1].lineno)


def _of_missing(caught: ast.expr) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return all(syntax.ident(kind) in _MISSING for kind in kinds)


def _is_absent(test: ast.expr, touch: Touch, *, there: bool) -> bool:
    """Whether a test holds (`there`: fails) only where the holder has no value, or none that keeps anything."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_absent(test.operand, touch, there=not there)
    if isinstance(test, ast.BoolOp):
        parts = [_is_absent(one, touch, there=there) for one in test.values]
        return any(parts) if isinstance(test.op, ast.And) is not there else all(parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compares(test, touch, there)
    return there and (_asks_for(test, touch) or _is_target(test, touch))


def _compares(test: ast.Compare, touch: Touch, there: bool) -> bool:
    op, left, right = test.ops[0], test.left, test.comparators[0]
    absent: tuple[type[ast.cmpop], ...] = (ast.IsNot, ast.NotEq) if there else (ast.Is, ast.Eq)
    if isinstance(op, absent) and isinstance(right, ast.Constant) and right.value is None:
        return _is_target(left, touch)
    if not isinstance(op, ast.In if there else ast.NotIn):
        return False
    if touch.keys:
        base, keys = syntax.peel(right)
        return base is not None and syntax.same(base, touch.base) and len(keys) < len(touch.keys)
    named = isinstance(left, ast.Constant) and left.value == syntax.ident(touch.base)
    return named and _is_namespace(right)


def _is_namespace(node: ast.expr) -> bool:
    called = syntax.ident(node.func) if isinstance(node, ast.Call) else ""
    return called in ("vars", "globals", "dir", "locals") or syntax.ident(node) == "__dict__"


def _asks_for(test: ast.expr, touch: Touch) -> bool:
    """`hasattr(x, "rows")`."""
    if not (isinstance(test, ast.Call) and syntax.ident(test.func) == "hasattr" and len(test.args) == 2):
        return False
    name, base = test.args[1], touch.base
    on = isinstance(base, ast.Attribute) and syntax.same(test.args[0], base.value)
    return on and isinstance(name, ast.Constant) and name.value == syntax.ident(base)


def _is_target(node: ast.expr, touch: Touch) -> bool:
    """Whether an expression reads what the statement binds, by way of `getattr` or `get` too."""
    base, keys = syntax.peel(node)
    return base is not None and syntax.same(base, touch.base) and len(keys) == len(touch.keys)
