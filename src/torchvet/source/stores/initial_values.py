"""Whether a value starts a holder rather than empties it: `if not hasattr(x, "rows"): x.rows = []`."""

from __future__ import annotations

import ast

from torchvet.source import syntax
from torchvet.source.program.mutations import Mutation
from torchvet.source.statements import spans

_MISSING = {"AttributeError", "KeyError", "NameError", "LookupError", "IndexError"}


def starts(mutation: Mutation) -> bool:
    """Whether a statement that gives a holder a fresh value runs only where there is none yet, or an empty one: it
    stands under a test of that, or where reading the holder failed."""
    for guard, scope in mutation.file.guards:
        if scope is not mutation.scope or isinstance(guard, ast.IfExp):
            continue
        if spans(guard.body, mutation.line) and _is_absent(guard.test, mutation, there=False):
            return True
        if spans(guard.orelse, mutation.line) and _is_absent(guard.test, mutation, there=True):
            return True
    within = mutation.scope.node or mutation.file.tree
    handlers = (h for n in ast.walk(within) if isinstance(n, ast.Try) for h in n.handlers)
    return any(spans(h.body, mutation.line) and h.type is not None and _of_missing(h.type) for h in handlers)


def _of_missing(caught: ast.expr) -> bool:
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return all(syntax.ident(kind) in _MISSING for kind in kinds)


def _is_absent(test: ast.expr, mutation: Mutation, *, there: bool) -> bool:
    """Whether a test holds (`there`: fails) only where the holder has no value, or none that keeps anything."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_absent(test.operand, mutation, there=not there)
    if isinstance(test, ast.BoolOp):
        # One part of an `and` that holds is enough; where the whole `and` fails, any part may be the one that failed.
        parts = [_is_absent(one, mutation, there=there) for one in test.values]
        return any(parts) if isinstance(test.op, ast.And) is not there else all(parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compares(test, mutation, there)
    return there and (_asks_for(test, mutation) or _is_target(test, mutation))


def _compares(test: ast.Compare, mutation: Mutation, there: bool) -> bool:
    op, left, right = test.ops[0], test.left, test.comparators[0]
    absent: tuple[type[ast.cmpop], ...] = (ast.IsNot, ast.NotEq) if there else (ast.Is, ast.Eq)
    if isinstance(op, absent) and isinstance(right, ast.Constant) and right.value is None:
        return _is_target(left, mutation)
    if not isinstance(op, ast.In if there else ast.NotIn):
        return False
    if mutation.keys:
        base, keys = syntax.peel(right)
        return base is not None and syntax.same(base, mutation.base) and len(keys) < len(mutation.keys)
    named = isinstance(left, ast.Constant) and left.value == syntax.ident(mutation.base)
    return named and _is_namespace(right)


def _is_namespace(node: ast.expr) -> bool:
    called = syntax.ident(node.func) if isinstance(node, ast.Call) else ""
    return called in ("vars", "globals", "dir", "locals") or syntax.ident(node) == "__dict__"


def _asks_for(test: ast.expr, mutation: Mutation) -> bool:
    """`hasattr(x, "rows")`."""
    if not (isinstance(test, ast.Call) and syntax.ident(test.func) == "hasattr" and len(test.args) == 2):
        return False
    name, base = test.args[1], mutation.base
    on = isinstance(base, ast.Attribute) and syntax.same(test.args[0], base.value)
    return on and isinstance(name, ast.Constant) and name.value == syntax.ident(base)


def _is_target(node: ast.expr, mutation: Mutation) -> bool:
    """Whether an expression reads what the statement binds, by way of `getattr` or `get` too."""
    base, keys = syntax.peel(node)
    return base is not None and syntax.same(base, mutation.base) and len(keys) == len(mutation.keys)
